"""The plan of an online placement: what it proposes is new and good, and loads and losses are forgotten with them."""

import math
import pickle
from dataclasses import replace

import numpy as np
import pytest

from placer.errors import BadInputError
from placer.graph.mapping import Mapping
from placer.graph.op_graph import Edge, Op, OpGraph
from placer.graph.topology import Device, Topology
from placer.result import Failed, Measured
from search.defaults import DEFAULT_SEARCHER
from search.list_scheduling.heft import heft_placement
from search.online.replan.load import Load
from search.online.replan.planner_server import BEGIN, CallServer
from search.online.replan.proposal import NoRoomError, PlanSettings
from search.online.replan.replanner import NEARLY, Replanner
from surrogate.simulate.simulator import Simulator
from tests.search.online.towers import LINK, towers


def machine(count, memory_bytes=None):
    return Topology(tuple(Device(f"worker:{i}", "cpu", memory_bytes) for i in range(count)), (LINK,))


def short_towers(count=3):
    return towers(count, length=12, seed=0, op_s=(1e-3, 4e-3), memory_bytes=10)


class Machine:
    """What a step really takes: a tenth more than profiled, and on each device what its load says."""

    def __init__(self, graph, topology, **load):
        simulator = Simulator(graph, topology)
        factor = [1.1 * load.get(name.replace(":", ""), 1.0) for name in topology.names]
        self.simulator = simulator.revalued(simulator.costs * np.array(factor))

    def told(self, proposals):
        return [(p.op_devices, self.result(p.op_devices)) for p in proposals]

    def result(self, devices):
        step_s = self.simulator.makespan(devices) + 1e-3
        return Measured(step_s, step_s * 0.02, 12)


@pytest.fixture(scope="module")
def graph():
    return short_towers()


def trained(graph, topology, rounds=1, **settings):
    """A plan that was told the single devices, and so many batches of three."""
    plan, clock = Replanner(graph, topology, PlanSettings(**settings)), Machine(graph, topology)
    plan.tell(clock.told(plan.singles()))
    for _ in range(rounds):
        plan.tell(clock.told(plan.propose(3)))
    return plan


def test_the_default_searcher_is_that_of_every_plan():
    assert PlanSettings().searcher == DEFAULT_SEARCHER


def test_singles_are_the_devices_that_hold_the_step_the_fastest_first(graph):
    devices = (Device("a", "cpu", speed=1.0), Device("b", "cpu", speed=2.0), Device("c", "cpu", 15))
    plan = Replanner(graph, Topology(devices, (LINK,)))
    assert [set(p.op_devices) for p in plan.singles()] == [{1}, {0}]
    assert Replanner(graph, machine(3, 300)).singles() == []


def test_the_first_proposals_are_far_better_than_a_single_device(graph):
    plan = trained(graph, machine(3), rounds=0)
    best = plan.propose(4)[0]
    assert best.predicted_s < 0.5 * plan.singles()[0].predicted_s
    assert best.predicted_s == pytest.approx(plan.predict(best.op_devices))


def test_proposals_come_before_anything_was_measured(graph):
    found = Replanner(graph, machine(2)).propose(4)
    assert len({p.op_devices for p in found}) == 4
    assert found[0].predicted_s < 0.75 * Replanner(graph, machine(2)).singles()[0].predicted_s


def test_no_proposal_repeats_another_or_what_was_told_and_each_is_a_mapping(graph):
    """Memory suffices with the head-room, which is tight here."""
    ops = tuple(replace(op, memory_bytes=10_000 * op.memory_bytes) for op in graph.ops)  # tensors take a tenth of one
    graph = OpGraph(graph.name, ops, graph.edges)
    plan, clock = Replanner(graph, machine(2, 2_600_000), PlanSettings(headroom=0.2)), Machine(graph, machine(2))
    told = set()
    for _ in range(4):
        found = plan.propose(3)
        devices = [p.op_devices for p in found]
        assert len(set(devices)) == len(devices)
        assert not told & set(devices)
        assert [p.predicted_s for p in found] == sorted(p.predicted_s for p in found)
        for p in found:
            Mapping(graph, plan.topology, p.op_devices, 0.2)
        plan.tell(clock.told(found))
        told |= set(devices)
    assert told


def test_known_rules_are_proposed_once_where_they_are_nearly_as_good(graph):
    plan = trained(graph, machine(3), rounds=0)
    first = plan.propose(6)
    searched_s = min(p.predicted_s for p in first if p.searcher == DEFAULT_SEARCHER)
    rules = [p for p in first if p.searcher in ("heft", "expert")]
    assert rules
    assert len(rules) <= 3
    assert all(p.predicted_s <= NEARLY * searched_s for p in rules)
    plan.tell(Machine(graph, plan.topology).told(first))
    assert {p.searcher for p in plan.propose(6)} <= {DEFAULT_SEARCHER}


def test_a_rule_that_is_no_good_is_not_proposed(graph):
    """HEFT does not look ahead to what comes back over links that are as slow as this."""
    slow = replace(LINK, latency_s=3e-3, send_s=2e-3, receive_s=2e-3)
    plan = Replanner(short_towers(2), Topology(machine(2).devices, (slow,)))
    prediction = plan._view().prediction
    heft = prediction.step_s_of(prediction.op_devices(heft_placement(prediction.problem)))
    found = plan.propose(6)
    assert heft > NEARLY * found[0].predicted_s
    assert "heft" not in {p.searcher for p in found}


def test_what_is_far_from_the_best_is_not_worth_a_step_of_the_training():
    """A chain over links that take longer than the step: the single devices were measured, and nothing is near."""
    slow = replace(LINK, latency_s=1.0)
    plan = Replanner(short_towers(1), Topology(machine(2).devices, (slow,)))
    plan.tell([(p.op_devices, Measured(p.predicted_s * 1.05, 1e-4, 12)) for p in plan.singles()])
    assert plan.propose(4) == []
    assert "slower than the best" in plan.ended


def test_where_nothing_is_left_it_says_why():
    ops = tuple(Op(name, cost_s={"cpu": 1.0}) for name in "ab")
    plan = Replanner(OpGraph("pair", ops, (Edge(0, 1, 1),)), machine(2))
    plan.tell([((a, b), Measured(2.0 + a + b, 0.01, 12)) for a in (0, 1) for b in (0, 1)])
    assert plan.propose(3) == []
    assert "nothing left" in plan.ended


def test_a_failure_is_told_and_not_proposed_again(graph):
    plan = trained(graph, machine(2), rounds=0)
    best = plan.propose(1)[0]
    plan.tell([(best.op_devices, Failed("memory", "out of memory"))])
    assert best.op_devices not in {p.op_devices for p in plan.propose(4)}


def test_a_result_that_is_told_again_takes_no_more_room(graph):
    plan = Replanner(graph, machine(2))
    told = Machine(graph, machine(2)).told(plan.singles())
    plan.tell(told)
    size = len(pickle.dumps(plan))
    for _ in range(100):
        plan.tell(told)
    assert len(pickle.dumps(plan)) == size


def test_measuring_corrects_what_is_predicted(graph):
    """Steps take 10 % and a millisecond more than profiled."""
    plan, clock = Replanner(graph, machine(2)), Machine(graph, machine(2))
    unseen = tuple(v % 2 for v in range(len(graph)))

    def miss():
        return abs(math.log(plan.predict(unseen) / clock.result(unseen).step_s))

    before = miss()
    plan.tell(clock.told([*plan.singles(), *plan.propose(4)]))
    assert miss() < 0.5 * before


def test_a_vague_result_corrects_less_than_a_sharp_one(graph):
    """A mapping on both devices takes twice what is predicted: in a few scattered steps, or in many alike."""

    def predicted(spread, repeats):
        plan, clock = Replanner(graph, machine(2)), Machine(graph, machine(2))
        plan.tell(clock.told(plan.singles()))
        (proposal,) = plan.propose(1)
        step_s = 2 * clock.result(proposal.op_devices).step_s
        plan.tell([(proposal.op_devices, Measured(step_s, spread * step_s, repeats))])
        return plan.predict(proposal.op_devices)

    assert predicted(0.8, 4) < 0.95 * predicted(0.01, 24)


def test_mappings_that_no_group_could_have_correct_predictions_too(graph):
    plan, clock = Replanner(graph, machine(2), PlanSettings(groups=6)), Machine(graph, machine(2))
    odd = tuple(v % 2 for v in range(len(graph)))
    before = plan.predict(odd)
    plan.tell([(odd, clock.result(odd))])
    assert plan.predict(odd) > before
    assert plan.propose(2)


def test_a_search_whose_time_is_up_proposes_what_it_has(graph):
    ticks = iter(range(10**6))
    plan = Replanner(graph, machine(2), clock=lambda: float(next(ticks)))
    plan.tell(Machine(graph, machine(2)).told(plan.singles()))
    assert plan.propose(2, seconds=0.5)
    assert next(ticks) < 100


# Loads.


def test_under_a_load_a_step_takes_its_factor_longer_on_that_device_alone(graph):
    """What was calibrated stays: only the base of a step, which no device computes, does not grow."""
    plan = trained(graph, machine(2))
    before = [plan.predict((d,) * len(graph)) for d in (0, 1)]
    base_s = plan._view().prediction.predictor.calibration.base_s
    plan.slowed({"worker:1": 2.0}, {})
    after = [plan.predict((d,) * len(graph)) for d in (0, 1)]
    assert after[0] == pytest.approx(before[0])
    assert after[1] - base_s == pytest.approx(2 * (before[1] - base_s))


def test_slow_links_make_crossing_dearer_both_ways_and_nothing_else(graph):
    plan = trained(graph, machine(2))
    split = plan.propose(1)[0].op_devices
    before = plan.predict(split), plan.predict((0,) * len(graph))
    plan.slowed({}, {("worker:0", "worker:1"): 50.0})
    assert plan.predict(split) > before[0]
    assert plan.predict((0,) * len(graph)) == pytest.approx(before[1])
    there = plan._view().prediction.topology
    assert there.link(0, 1).latency_s == pytest.approx(there.link(1, 0).latency_s)


def test_a_loaded_device_gets_less_to_do(graph):
    def share(plan):
        best = plan.propose(3)[0]
        costs = [op.cost_s["cpu"] for op in graph.ops]
        return sum(s for s, d in zip(costs, best.op_devices, strict=True) if d == 1) / sum(costs)

    plan = trained(graph, machine(2), rounds=0)
    free = share(plan)
    plan.slowed({"worker:1": 3.0}, {})
    assert share(plan) < 0.7 * free


def test_under_a_heavy_load_the_other_device_alone_is_proposed_though_it_was_measured_before(graph):
    plan = trained(graph, machine(2))
    plan.slowed({"worker:1": 200.0}, {})
    assert [set(p.op_devices) for p in plan.propose(1)] == [{0}]


def test_a_load_that_goes_brings_back_what_was_measured(graph):
    """An excursion changes nothing of what is proposed after it; probes find factors near 1."""
    still, shaken = trained(graph, machine(2)), trained(graph, machine(2))
    shaken.slowed({"worker:0": 2.5}, {})
    shaken.tell(Machine(graph, machine(2), worker0=2.5).told(shaken.propose(3)))
    shaken.slowed({"worker:0": 1.02, "worker:1": 0.99}, {("worker:0", "worker:1"): 1.05})
    assert shaken.propose(3) == still.propose(3)


def test_a_load_that_comes_again_brings_back_what_was_measured_under_it(graph):
    plan = trained(graph, machine(2))
    plan.slowed({"worker:0": 2.0}, {})
    found = plan.propose(3)
    plan.tell(Machine(graph, machine(2), worker0=2.0).told(found))
    plan.slowed({}, {})
    plan.slowed({"worker:0": 2.1}, {})
    assert not {p.op_devices for p in found} & {p.op_devices for p in plan.propose(3)}


def test_loads_are_alike_as_far_as_probes_can_tell():
    topology = machine(2)
    one, other = (Load.of(topology, {"worker:0": f}, {}) for f in (2.0, 2.1))
    assert one.is_like(other)
    assert other.is_like(one)
    assert not one.is_like(Load.of(topology, {"worker:0": 2.4}, {}))
    assert not one.is_like(Load.of(topology, {"worker:1": 2.0}, {}))
    assert Load.of(topology, {"worker:0": 1.03}, {}) == Load()


@pytest.mark.parametrize("factors", [{"worker:9": 2.0}, {"worker:0": 0.0}, {"worker:0": math.nan}])
def test_a_load_that_is_none_is_refused(graph, factors):
    plan = Replanner(graph, machine(2))
    with pytest.raises(BadInputError, match="load"):
        plan.slowed(factors, {})


# Devices that are lost.


def test_devices_that_are_lost_are_not_used_and_the_others_keep_their_numbers(graph):
    plan = trained(graph, machine(3))
    used = plan.propose(1)[0]
    assert set(used.op_devices) == {0, 1, 2}
    plan.only(["worker:2", "worker:0"])
    found = plan.propose(3)
    assert all(set(p.op_devices) <= {0, 2} for p in found)
    assert {0, 2} in [set(p.op_devices) for p in found]
    assert plan.predict(used.op_devices) == math.inf
    assert [set(p.op_devices) for p in plan.singles()] in ([{0}, {2}], [{2}, {0}])


def test_a_device_that_is_lost_takes_nothing_of_what_is_known_with_it(graph):
    """Single devices are predicted as before, by the calibration of all; and when it is back, so is everything."""
    plan, still = trained(graph, machine(3)), trained(graph, machine(3))
    alone = (2,) * len(graph)
    before = plan.predict(alone)
    plan.only(["worker:0", "worker:2"])
    assert plan.predict(alone) == pytest.approx(before)
    plan.only(["worker:0", "worker:1", "worker:2"])
    assert plan.propose(3) == still.propose(3)


def test_a_load_holds_on_the_devices_that_are_left(graph):
    plan = trained(graph, machine(3))
    plan.slowed({"worker:2": 3.0}, {("worker:1", "worker:2"): 2.0})
    loaded = plan.predict((2,) * len(graph))
    plan.only(["worker:0", "worker:2"])
    assert plan.predict((2,) * len(graph)) == pytest.approx(loaded)


def test_the_last_device_that_can_run_an_op_cannot_be_missed():
    ops = (Op("a", cost_s={"cpu": 1.0}), Op("b", cost_s={"worker:1": 1.0}))
    plan = Replanner(OpGraph("pinned", ops, (Edge(0, 1, 1),)), machine(2))
    with pytest.raises(BadInputError, match="cannot run on worker:0 alone"):
        plan.only(["worker:0"])
    assert plan.names == ("worker:0", "worker:1")
    with pytest.raises(BadInputError, match="no device left"):
        plan.only([])


def test_the_only_device_that_is_left_is_proposed_until_it_was_measured(graph):
    plan = Replanner(graph, machine(2), PlanSettings(searcher="local"))
    plan.only(["worker:1"])
    assert [set(p.op_devices) for p in plan.propose(3)] == [{1}]
    plan.tell(Machine(graph, machine(2)).told(plan.singles()))
    assert plan.propose(3) == []


# Run order, pickles.


def test_the_order_of_a_proposal_is_one_in_which_producers_come_first(graph):
    plan = trained(graph, machine(2))
    best = next(p for p in plan.propose(4) if len(set(p.op_devices)) > 1)
    assert best.order
    place = {name: i for i, name in enumerate(best.order)}
    names = [op.name for op in graph.ops]
    pairs = [(names[e.src], names[e.dst]) for e in graph.edges]
    assert all(place[u] < place[v] for u, v in pairs if u in place and v in place)
    assert all(single.order == () for single in plan.singles())


def test_a_mapping_of_another_graph_is_refused(graph):
    plan = Replanner(graph, machine(2))
    for wrong in ((0, 1), (7,) * len(graph)):
        for method in (plan.predict, lambda w: plan.tell([(w, Measured(1.0))])):
            with pytest.raises(BadInputError, match=f"this plan is for {len(graph)}"):
                method(wrong)


def test_graphs_topologies_and_proposals_survive_pickling(graph):
    again = pickle.loads(pickle.dumps(graph))
    assert again.fingerprint == graph.fingerprint
    assert pickle.loads(pickle.dumps(machine(2))) == machine(2)
    plan = Replanner(again, machine(2))
    assert plan.propose(2) == pickle.loads(pickle.dumps(Replanner(graph, machine(2)).propose(2)))


def keeping(kept_bytes):
    """Two layers whose tensors wait for backward ops."""
    ops = [
        Op(f"{way}{i}", cost_s={"cpu": 1e-3}, memory_bytes=10 * (way == "f"), colocate=f"layer{i}")
        for way, layers in (("f", (0, 1)), ("b", (1, 0)))
        for i in layers
    ]
    edges = (Edge(0, 1, 8), Edge(0, 3, kept_bytes, 1), Edge(1, 2, kept_bytes, 1), Edge(2, 3, 8))
    return OpGraph("keeping", tuple(ops), edges)


def test_what_lacks_memory_for_its_tensors_is_not_proposed():
    plan = Replanner(keeping(1000), machine(2, 1500))
    assert plan.singles() == []
    proposed = plan.propose(4)
    assert proposed
    for p in proposed:
        assert p.op_devices[0] == p.op_devices[3] != p.op_devices[1] == p.op_devices[2]


@pytest.mark.parametrize("searcher", ["hybrid", "random"])
def test_where_nothing_that_is_asked_fits_the_nearest_is_said(searcher):
    plan = Replanner(keeping(10_000), machine(2, 1500), PlanSettings(searcher=searcher))
    assert plan.singles() == []
    with pytest.raises(NoRoomError, match=r"^no mapping that was asked fits .* of the nearest, worker:\d would hold"):
        plan.propose(4)
    server = CallServer()
    assert server.answer(BEGIN, (keeping(10_000), machine(2, 1500), PlanSettings(searcher=searcher))) == (True, None)
    worked, (kind, line) = server.answer("propose", (4,))
    assert (worked, kind) == (False, NoRoomError) and line.startswith("no mapping that was asked fits")
