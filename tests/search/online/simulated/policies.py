"""What adapting to loads costs and gains on the simulated machine; a program, which takes the number of seeds:
python -m tests.search.online.simulated.policies 96

Seconds of steps and probes, as a share of the same steps under the mapping of before, without a look at any other; the
table of docs/decisions/044-what-a-look-may-cost.md.
"""

import sys
from dataclasses import dataclass, field
from statistics import geometric_mean, median

import numpy as np

from tests.search.online.simulated.machine import Machine
from tests.search.online.simulated.training import Training, steps_until_good

SEEDS = 96
UNEVEN = {"noise": 0.12, "hang": 0.5, "probe_noise": 0.15, "stragglers": 0.03, "disturbed": 2.3}
SHORT = UNEVEN | {"scale": 0.15}  # steps of 15 ms; of 100 ms else
WHOLE = 10**6  # steps that a load lasts


@dataclass(frozen=True)
class Case:
    """load: how many times slower worker:0 becomes within `grows` steps. weather: the most by which either device
    becomes slower now and then. before: the load of worker:1 during the search, and shortly after it. machine:
    settings of `Machine`.
    """

    said: str
    steps: int
    load: float = 1.0
    grows: int = 1
    before: float = 1.0
    weather: float = 0.0
    machine: dict = field(default_factory=dict)


CASES = (
    Case("15 ms, uneven: no load", 3000, machine=SHORT),
    Case("15 ms, uneven: weak loads that come and go", 3000, weather=0.4, machine=SHORT),
    Case("15 ms, uneven: a load of 2", 1500, 2.0, machine=SHORT),
    Case("15 ms, uneven: a load of 1.5 goes after the search", 3000, before=1.5, machine=SHORT),
    Case("100 ms, uneven: weak loads that come and go", 3000, weather=0.4, machine=UNEVEN),
    Case("100 ms, uneven: a load of 2", 400, 2.0, machine=UNEVEN),
    Case("100 ms: a load of 2", 400, 2.0),
    Case("100 ms: a load that grows to 2 within 150 steps", 550, 2.0, 150),
)


def run(case, seed):
    """Its seconds as a share of those without adapting, and the steps until 95 % of the optimum under the load."""
    machine = Machine(seed, **case.machine)
    machine.loads.append((0, WHOLE, (1.0, case.before)))
    training = Training(machine).until("steady").steps(60)
    begin = machine.step
    machine.loads[0] = (0, begin + 30, (1.0, case.before))
    pieces = min(40, case.grows)
    for i in range(pieces):
        end = begin + case.grows * (i + 1) // pieces if i + 1 < pieces else begin + WHOLE
        machine.loads.append((begin + case.grows * i // pieces, end, (1 + (case.load - 1) * (i + 1) / pieces, 1.0)))
    machine.loads += weather(np.random.default_rng(seed), begin, case)
    first, start_s, noisy, never_s = training.mode, machine.clock.now_s, len(machine.ran), 0.0
    for _ in range(case.steps):
        never_s += machine.true_s(first)
        training.steps(1)
    ran = machine.ran[noisy:]
    beside_s = machine.clock.now_s - start_s - sum(step_s for _, _, step_s in ran)  # probes
    whole = begin + (case.grows if case.grows > 1 else 0)
    return (sum(true_s for _, true_s, _ in ran) + beside_s) / never_s, steps_until_good(
        training, whole, (case.load, 1.0)
    )


def weather(rng, begin, case):
    """Loads on both devices, of any strength up to the case's, each for 30 to 300 steps."""
    loads, at = [], begin
    while case.weather and at < begin + case.steps:
        lasts = int(rng.integers(30, 300))
        loads.append((at, at + lasts, tuple(1 + case.weather * rng.random(2) ** 2)))
        at += lasts
    return loads


if __name__ == "__main__":
    count = int(sys.argv[1]) if len(sys.argv) > 1 else SEEDS
    for case in CASES:
        shares, good = zip(*[run(case, seed) for seed in range(count)], strict=True)
        until = f", {median(good):g} steps until 95 %" if case.load > 1 else ""
        print(f"{case.said}: {geometric_mean(shares):.3f}, worst {max(shares):.3f}{until}", flush=True)
