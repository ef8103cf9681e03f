"""A load that stays: looks for better mappings under it."""

from tests.search.online.simulated.training import settled


def test_under_a_load_that_stays_looks_for_better_mappings_are_further_and_further_apart():
    for seed in range(3):
        training, _ = settled(seed, (2.0, 1.0), 10_000)
        asked = []
        for _ in range(4):
            before = training.machine.planner.calls.count("propose")
            training.steps(1000)
            asked.append(training.machine.planner.calls.count("propose") - before)
        assert asked[0] > 3 and max(asked[2:]) <= 3, asked
