"""LoadProbes: medians of probes that nothing folds away, and which device a busy process slows."""

from __future__ import annotations

import subprocess
import sys
from itertools import chain, repeat

import pytest

from placer.devices.load.load_probes import PROBE_S, REPEATS, LoadProbes, LoadReading, Slowdown
from placer.errors import BadInputError
from placer.tf_internals.functions import collected_nodes

PAIR = ("worker:0", "worker:1")
# Factors are compared with one another: other processes slow these machines, too. Three busy processes outweigh them;
# each is in a session of its own, for Linux shares a core equally among sessions, and ends by itself.
HOGS = 3
TRIES = 30  # judged so often at most, because another program may have had the core while it was taken to be calm
HOG = """
import os, resource
resource.setrlimit(resource.RLIMIT_CPU, (20, 20))
os.sched_setaffinity(0, [{core}])
print('busy', flush=True)
while True: pass
"""
BESIDE_A_HOG = f"""
import subprocess, sys
from placer.devices.opening import open_devices
from placer.devices.load.load_probes import LoadProbes

HOG = {HOG!r}

def start_hog(core):
    code = HOG.format(core=core)
    return subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, start_new_session=True)

def factors(pace, core):
    calm = pace.take()
    hogs = [start_hog(core) for _ in range({HOGS})]
    try:
        for hog in hogs:
            hog.stdout.readline()
        return pace.take().against(calm)
    finally:
        for hog in hogs:
            hog.kill()
            hog.wait()

with open_devices("workers:2", links=False) as devices:
    pace = LoadProbes(devices)
    seen = []
    for _ in range({TRIES}):
        slower = factors(pace, devices.workers.cores[1][0])
        seen.append(slower)
        if slower.devices["worker:1"] > max(1.3, 1.15 * slower.devices["worker:0"]):
            print("told")
            break
    else:
        print(seen)
"""


class Ticks:
    """A clock: each probe, timed between two looks, takes what is next in the list."""

    def __init__(self, *durations: float) -> None:
        self.durations = chain(durations, repeat(PROBE_S))
        self.now = 0.0
        self.looks = 0

    def __call__(self) -> float:
        self.looks += 1
        self.now += next(self.durations) if self.looks % 2 == 0 else 0.0
        return self.now


def reading(zero: float, one: float, link: float) -> LoadReading:
    return LoadReading({"worker:0": zero, "worker:1": one}, {PAIR: link})


def test_factors_above_one_are_slower_now():
    slowdown = reading(1.0, 4.0, 3.0).against(reading(2.0, 2.0, 2.0))
    assert slowdown == Slowdown({"worker:0": 0.5, "worker:1": 2.0}, {PAIR: 1.5})


def test_readings_of_different_devices_are_refused():
    with pytest.raises(BadInputError, match="different devices"):
        reading(1.0, 1.0, 1.0).against(LoadReading({"worker:0": 1.0}, {}))


def test_a_reading_is_the_median_and_names_each_device_and_pair(two_cpus):
    clock = Ticks()
    pace = LoadProbes(two_cpus, clock)
    rounds = [(1.0, 5.0, 7.0), (90.0, 4.0, 8.0), (2.0, 70.0, 9.0)]
    assert len(rounds) == REPEATS
    clock.durations = chain.from_iterable(rounds)
    assert pace.take() == LoadReading(
        {"cpu:0": pytest.approx(2.0), "cpu:1": pytest.approx(5.0)}, {("cpu:0", "cpu:1"): 8.0}
    )
    clock.durations = iter([3.0, 1.0, 2.0])
    assert pace.device("cpu:1") == pytest.approx(2.0)
    clock.durations = iter([6.0, 4.0, 5.0])
    assert pace.link(("cpu:0", "cpu:1")) == pytest.approx(5.0)


def test_a_probe_is_doubled_until_it_takes_long_enough_and_nothing_is_folded_away(two_cpus):
    """Three timings a size: two to warm up, the third decides. cpu:0 needs the third size, cpu:1 the first."""
    with collected_nodes() as nodes:
        LoadProbes(two_cpus, Ticks(*[0.0] * 8, PROBE_S))
    ran = [(node.op.removeprefix("_Mkl"), node.device[-1:]) for node in nodes]
    assert (ran.count(("MatMul", "0")), ran.count(("MatMul", "1"))) == (1 + 2 + 4, 1)
    assert (ran.count(("AddV2", "0")), ran.count(("AddV2", "1"))) == (4, 4)


def test_probes_that_are_to_be_compared_with_others_are_of_the_same_size(two_cpus):
    with collected_nodes() as nodes:
        probes = LoadProbes(two_cpus, Ticks(), {"cpu:0": 4})
    ran = [(node.op.removeprefix("_Mkl"), node.device[-1:]) for node in nodes]
    assert (ran.count(("MatMul", "0")), ran.count(("MatMul", "1"))) == (4, 1)
    assert probes.products == {"cpu:0": 4, "cpu:1": 1}


@pytest.mark.slow
@pytest.mark.workers
def test_a_busy_process_on_one_workers_core_slows_that_worker():
    ran = subprocess.run([sys.executable, "-c", BESIDE_A_HOG], capture_output=True, text=True, timeout=1500)
    assert ran.stdout == "told\n", ran.stdout + ran.stderr
