"""Synchronous SGD by formula: timelines drawn, and what must hold whatever the graph."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from placer.errors import BadInputError
from placer.graph.graph_files import read_graph
from placer.graph.op_graph import Edge, Op, OpGraph
from placer.graph.topology import Device, Link, Topology
from surrogate.scaling import sync_sgd
from surrogate.scaling.sync_sgd import SgdSettings, Sum, iteration, phases_of, summing, work_of

GNMT = Path(__file__).parents[2] / "data" / "gnmt.json"


def network(layers, forward_s=1.0, backward_s=2.0, held=8, update_s=1.0):
    """A chain of layers 1, 2, ...: forward ops, mirrored backward ops, and an update op each."""
    n = len(layers)
    ops = [Op(f"f{i}", cost_s={"cpu": forward_s}, memory_bytes=held, colocate=i, phase="forward") for i in layers]
    ops += [Op(f"b{i}", cost_s={"cpu": backward_s}, colocate=i, phase="backward") for i in reversed(layers)]
    ops += [Op(f"u{i}", cost_s={"cpu": update_s}, colocate=i, phase="update") for i in layers]
    edges = [Edge(i, i + 1, 4) for i in range(2 * n - 1)]
    edges += [Edge(2 * n - 1 - i, 2 * n + i, 8) for i in range(n)]
    return OpGraph("chain", tuple(ops), tuple(edges))


def cluster(devices, latency_s=0.0, bandwidth=4.0, contention="none", **ends):
    link = Link("*", "*", latency_s, bandwidth, **ends)
    return Topology(tuple(Device(f"d{i}", "cpu") for i in range(devices)), (link,), contention)


def drawn(found):
    """Layers by their number, all else by its first letter; a column a second."""
    letters = [p.name[1] if p.name[0] == "b" else p.name[0] for p in found.pieces]
    pieces = tuple(p._replace(name=letter) for p, letter in zip(found.pieces, letters, strict=True))
    return replace(found, pieces=pieces).as_text(1.0).splitlines()


THREE = network("123")


class TestTimeline:
    """Of two devices: a ring takes two rounds of 4 of the 8 bytes, at 4 bytes a second."""

    def test_gradients_are_summed_while_the_backward_pass_goes_on(self):
        assert drawn(iteration(THREE, cluster(2), 2)) == [
            "compute |fff332211uuu|",
            "network |.....332211.|",
        ]

    def test_without_overlap_the_network_waits_for_the_end_of_the_backward_pass(self):
        found = iteration(THREE, cluster(2), 2, SgdSettings(overlap=False))
        assert drawn(found) == [
            "compute |fff332211..u.u.u|",
            "network |.........332211.|",
        ]
        assert found.exposed_s == pytest.approx(4.0)

    def test_a_bucket_sums_several_layers_at_once(self):
        found = iteration(THREE, cluster(2, latency_s=1.0), 2, SgdSettings(bucket_bytes=16))
        assert drawn(found) == [
            "compute |fff332211....uu..u|",
            "network |.......2222221111.|",
        ]

    def test_what_the_ends_of_a_link_do_is_compute_and_not_hidden(self):
        """Each round sends one part and receives one, half a second each: two seconds a gradient."""
        found = iteration(THREE, cluster(2, send_s=0.5, receive_s=0.5), 2)
        assert drawn(found) == [
            "compute |fff333322221111uuu|",
            "network |.......33..22..11.|",
        ]

    def test_a_batch_is_read_and_copied_before_the_step(self):
        slow = SgdSettings(input_bytes=4.0, io_bytes_per_s=4.0, host_bytes_per_s=2.0, prefetch=False)
        graph = network("12", backward_s=1.0)
        assert drawn(iteration(graph, cluster(1), 1, slow)) == [
            "io      |i........|",
            "copy    |.cc......|",
            "compute |...ff21uu|",
        ]
        assert drawn(iteration(graph, cluster(1), 1, replace(slow, prefetch=True))) == [
            "io      |i.....|",
            "copy    |cc....|",
            "compute |ff21uu|",
        ]

    def test_prefetch_does_not_hide_what_devices_compute_for_it(self):
        busy = SgdSettings(input_bytes=4.0, io_bytes_per_s=4.0, host_bytes_per_s=2.0, host_busy=0.5)
        graph = network("12", backward_s=1.0)
        assert drawn(iteration(graph, cluster(1), 1, busy)) == [
            "io      |i......|",
            "copy    |cc.....|",
            "compute |cff21uu|",
        ]
        before = iteration(graph, cluster(1), 1, replace(busy, prefetch=False))
        assert before == iteration(graph, cluster(1), 1, replace(busy, prefetch=False, host_busy=0.0))

    def test_a_loader_that_is_too_slow_is_waited_for(self):
        slow = SgdSettings(input_bytes=4.0, io_bytes_per_s=0.1)
        assert iteration(THREE, cluster(1), 1, slow).iteration_s == pytest.approx(40.0)
        assert iteration(THREE, cluster(2), 2, slow).iteration_s == pytest.approx(80.0)
        shared = iteration(THREE, cluster(2), 2, replace(slow, batch="shared"))
        assert shared.iteration_s == pytest.approx(40.0)

    def test_the_slowest_device_is_waited_for(self):
        devices = (Device("d0", "cpu"), Device("d1", "cpu", speed=0.5))
        found = iteration(THREE, Topology(devices, cluster(2).links), 2)
        assert found.pieces[0][:4] == ("compute", "forward", 0.0, 6.0)
        assert [p.start_s for p in found.pieces if p.lane == "network"] == [10.0, 14.0, 18.0]


class TestSums:
    def test_a_ring_takes_2_n_minus_1_rounds_of_an_nth(self):
        for n in (2, 3, 8):
            found = summing(cluster(n, latency_s=0.1), n, "ring").network_s(24.0)
            assert found == pytest.approx(2 * (n - 1) * (0.1 + 24 / n / 4))

    def test_a_server_takes_a_way_out_and_a_way_back_which_queue_at_its_port(self):
        way_s = 0.1 + 24 / 4
        assert summing(cluster(5, 0.1), 5, "server").network_s(24.0) == pytest.approx(2 * way_s)
        assert summing(cluster(5, 0.1, contention="port"), 5, "server").network_s(24.0) == pytest.approx(8 * way_s)

    @pytest.mark.parametrize(("devices", "turns"), [(2, 2), (4, 2), (5, 3)])
    def test_a_round_of_a_ring_takes_turns_where_a_device_has_one_port(self, devices, turns):
        free, queued = (summing(cluster(devices, 0.1, contention=c), devices, "ring") for c in ("link", "port"))
        assert queued.network_s(24.0) == pytest.approx(turns * free.network_s(24.0))

    def test_the_slowest_link_sets_the_pace_of_a_ring(self):
        slow = Link("d1", "d2", 0.0, 1.0)
        topology = Topology(cluster(3).devices, (*cluster(3).links, slow))
        assert summing(topology, 3, "ring").network_s(3.0) == pytest.approx(4.0)
        assert summing(topology, 2, "ring").network_s(3.0) == pytest.approx(2 * 1.5 / 4)

    def test_more_devices_than_the_topology_has_are_like_these(self):
        for form in ("ring", "server"):
            found = summing(cluster(2, 0.1), 8, form), summing(cluster(8, 0.1), 8, form)
            assert found[0].network_s(24.0) == pytest.approx(found[1].network_s(24.0))
            assert found[0].ends_s(24.0) == found[1].ends_s(24.0)

    def test_one_device_has_nothing_to_sum(self):
        assert Sum(1, "ring").network_s(1e9) == Sum(1, "server").ends_s(1e9) == 0.0


@pytest.fixture(params=range(12))
def case(request):
    """A graph, a topology with contention and working ends or without, and settings, all at random."""
    chance = random.Random(request.param)
    layers = [chr(ord("a") + i) for i in range(chance.randint(1, 8))]
    graph = network(layers)
    ops = tuple(
        replace(op, cost_s={"cpu": chance.uniform(0.1, 3.0)}, memory_bytes=op.memory_bytes and chance.randint(1, 60))
        for op in graph.ops
    )
    devices = tuple(Device(f"d{i}", "cpu", speed=chance.uniform(0.5, 2.0)) for i in range(4))
    ends = {"send_s": chance.choice([0.0, 0.2]), "receive_s_per_byte": chance.choice([0.0, 0.01])}
    link = Link("*", "*", chance.uniform(0.0, 0.5), chance.uniform(2.0, 50.0), **ends)
    topology = Topology(devices, (link,), chance.choice(["none", "link", "port"]))
    settings = SgdSettings(
        chance.choice(["ring", "server"]), True, chance.choice(["fixed", "shared"]),
        bucket_bytes=chance.choice([0.0, 40.0]), input_bytes=chance.choice([0.0, 10.0]), io_bytes_per_s=10.0,
        host_bytes_per_s=20.0, prefetch=chance.choice([True, False]),
        host_busy=chance.choice([0.0, 0.4, 1.0]),
    )  # fmt: skip
    return OpGraph(graph.name, ops, graph.edges), topology, settings


class TestTheorems:
    def test_one_device_sums_nothing(self, case):
        graph, topology, settings = case
        one = iteration(graph, topology, 1, settings)
        assert one.busy_s("network") == one.exposed_s == 0.0

    @pytest.mark.parametrize("devices", [2, 3, 4, 16])
    def test_overlap_and_prefetch_are_never_slower_than_none(self, case, devices):
        graph, topology, settings = case
        plain = iteration(graph, topology, devices, replace(settings, overlap=False)).iteration_s
        assert iteration(graph, topology, devices, settings).iteration_s <= plain + 1e-9
        waits = iteration(graph, topology, devices, replace(settings, prefetch=False)).iteration_s
        assert iteration(graph, topology, devices, replace(settings, prefetch=True)).iteration_s <= waits + 1e-9

    @pytest.mark.parametrize("devices", [2, 4, 16])
    def test_no_speed_up_exceeds_the_number_of_devices(self, case, devices):
        """Of equal devices: with faster ones beside a slow first one it may."""
        graph, topology, settings = case
        equal = replace(topology, devices=tuple(replace(d, speed=1.0) for d in topology.devices))
        one, many = (iteration(graph, equal, n, settings).batches_per_s for n in (1, devices))
        assert many <= devices * one * (1 + 1e-9)

    @pytest.mark.parametrize("devices", [1, 2, 4])
    def test_no_iteration_is_shorter_than_what_each_lane_has_to_do(self, case, devices):
        graph, topology, settings = case
        found = iteration(graph, topology, devices, settings)
        assert found.iteration_s >= max(found.busy_s(lane) for lane in ("io", "copy", "compute", "network")) - 1e-9
        first_s = min((p.start_s for p in found.pieces if p.lane == "network"), default=0.0)
        assert found.iteration_s >= first_s + found.busy_s("network") - 1e-9

    def test_lanes_do_one_thing_at_a_time(self, case):
        graph, topology, settings = case
        found = iteration(graph, topology, 4, settings)
        for lane in ("compute", "network"):
            mine = sorted((p.start_s, p.end_s) for p in found.pieces if p.lane == lane)
            assert all(end <= start + 1e-9 for (_, end), (start, _) in pairwise(mine))

    def test_all_gradients_are_summed_once(self, case):
        graph, topology, _ = case
        work = work_of(graph, topology, 2)
        assert sum(layer.gradient_bytes for layer in work.layers) == sum(op.memory_bytes for op in graph.ops)
        total_s = sum(layer.backward_s[0] for layer in work.layers)
        costs_s = sum(op.cost_s["cpu"] for op in graph.ops if op.phase == "backward")
        assert total_s == pytest.approx(costs_s / topology.devices[0].speed)


def test_on_a_network_that_costs_nothing_a_fixed_batch_scales_perfectly():
    topology = cluster(4, bandwidth=1e18)
    one, four = (iteration(THREE, topology, n) for n in (1, 4))
    assert four.batches_per_s == pytest.approx(4 * one.batches_per_s)


def test_a_shared_batch_divides_both_passes_and_not_the_update():
    found = iteration(THREE, cluster(2, bandwidth=1e18), 2, SgdSettings(batch="shared"))
    assert found.iteration_s == pytest.approx((3 + 6) / 2 + 3)


def test_a_device_of_the_ring_sends_over_one_link_and_receives_over_another():
    """Whatever goes out of the first device and comes into it takes its time; the second has no work of it."""
    out, back = Link("d0", "d1", 0, 4.0, send_s=10.0), Link("d1", "d0", 0, 4.0, receive_s=10.0)
    topology = replace(cluster(2), links=(out, back))
    assert summing(topology, 2, "ring").ends_s(8) == 2 * 20


def test_a_step_is_looked_through_once_for_all_numbers_of_devices(monkeypatch):
    asked = []
    monkeypatch.setattr(sync_sgd, "work_of", lambda *given: asked.append(given[2]) or work_of(*given))
    on = sync_sgd.iterations(THREE, cluster(2))
    alone = [iteration(THREE, cluster(2), count) for count in (1, 2, 3, 9)]
    del asked[:]
    assert [on(count) for count in (1, 2, 3, 9)] == alone and asked == [1, 2]


def test_slots_of_the_optimizer_are_no_gradients():
    (layer, *_) = work_of(network("1", held=24), cluster(1), 1, slots=2).layers
    assert layer.gradient_bytes == 8


def test_ops_of_a_captured_step_are_followed_through_the_update_to_their_gradient():
    """variable -> forward -> gradient -> scale -> assign to the variable, the only one colocated with it."""
    ops = (
        Op("variable", cost_s={"cpu": 0.0}, memory_bytes=16, colocate="variable", phase="forward"),
        Op("forward", cost_s={"cpu": 1.0}, phase="forward"),
        Op("gradient", cost_s={"cpu": 1.0}, phase="backward"),
        Op("scale", cost_s={"cpu": 0.1}, phase="update"),
        Op("assign", cost_s={"cpu": 0.1}, colocate="variable", phase="update"),
        Op("of_input", cost_s={"cpu": 2.0}, phase="backward"),
        Op("statistics", cost_s={"cpu": 0.0}, memory_bytes=99, colocate="statistics", phase="forward"),
    )
    edges = (Edge(0, 1, 4), Edge(1, 2, 4), Edge(2, 3, 16), Edge(3, 4, 16), Edge(1, 5, 4), Edge(1, 6, 4))
    work = work_of(OpGraph("captured", ops, edges), cluster(1), 1)
    assert [(layer.name, layer.gradient_bytes) for layer in work.layers] == [("gradient", 16.0), ("of_input", 0.0)]
    assert work.update_s == pytest.approx((0.2,))


def test_a_profile_without_phases_has_them_by_its_mirrored_backward_pass():
    graph = read_graph(GNMT)
    phases = phases_of(graph)
    assert all(("/grad" in op.name) == (phase == "backward") for op, phase in zip(graph.ops, phases, strict=True))
    topology = Topology(tuple(Device(f"g{i}", "gpu") for i in range(4)), (Link("*", "*", 1e-5, 1e10),))
    found = [iteration(graph, topology, n) for n in (1, 2, 4)]
    assert 1 < found[1].batches_per_s / found[0].batches_per_s < 2
    assert found[2].batches_per_s > found[1].batches_per_s


def alone(op):
    return OpGraph("alone", (op,), ())


@pytest.mark.parametrize(
    ("graph", "topology", "devices", "says"),
    [
        (THREE, cluster(2), 0, "0 devices cannot train"),
        (THREE, cluster(1), 2, "has one device, and so no link"),
        (THREE, Topology(cluster(2).devices), 2, "no link d0 -> d1"),
        (
            alone(Op("a", cost_s={"cpu": 1.0}, memory_bytes=8)),
            cluster(2),
            2,
            "no backward op belongs to an op with mem",
        ),
        (
            alone(Op("a", cost_s={"cpu": 1.0}, devices=("d0",))),
            cluster(2),
            2,
            "device 'd1' cannot run the op 'a', and each must run all",
        ),
        (network("12", 0.0, 0.0, update_s=0.0), cluster(1), 1, "take no time; give them costs"),
    ],
)
def test_what_cannot_be_trained_is_one_line(graph, topology, devices, says):
    with pytest.raises(BadInputError) as refused:
        iteration(graph, topology, devices)
    assert says in str(refused.value) and "\n" not in str(refused.value)


@pytest.mark.parametrize(
    "settings",
    [
        {"form": "tree"},
        {"batch": "huge"},
        {"slots": -1},
        {"slots": 10**310},
        {"bucket_bytes": -1.0},
        {"io_bytes_per_s": 0.0},
    ],
)
def test_settings_that_make_no_sense_are_refused(settings):
    with pytest.raises(BadInputError):
        SgdSettings(**settings)
