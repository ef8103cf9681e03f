"""The names of the schedules."""

from placer.measure.store import BY_RANK
from surrogate.simulate.schedules import RANK


def test_a_store_means_the_schedule_of_the_simulator_where_it_names_none():
    assert BY_RANK == RANK
