"""Loops as tutorials show them train the same wrapped and alone: every variable, metric, effect and random stream.

Each runs twice from the same seeds, with new batches at every step, in a process of its own in which two CPU devices
round alike; so all is compared to the last bit, except where a loop states a bound.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pytest

from experiments.benches.process import Caps, Measurer
from experiments.loops.catalogue import LOOPS, Loop
from experiments.loops.environment import EXACT
from experiments.loops.judge import Judge

QUICK = ("scratch",)
LIMIT_S = 1500.0  # which a loop comes near only where it hangs
SEARCHED = ("partial_batch",)
INSIDE = [loop for loop in LOOPS.values() if not loop.alone]
OUTSIDE = [loop for loop in LOOPS.values() if loop.alone]


@pytest.fixture(scope="module")
def judge() -> Iterator[Measurer]:
    """A process that runs loops; renewed where one dies or takes too long."""
    with pytest.MonkeyPatch.context() as patch, Measurer(Judge, Caps(LIMIT_S, batch=1000)) as measurer:
        for name, value in EXACT.items():
            patch.setenv(name, value)
        yield measurer


def quick_and_slow(loops: Sequence[Loop], quick: tuple[str, ...] = QUICK) -> list[Any]:
    """Of those that are not quick, three of four run nightly."""
    others = [x.name for x in loops if x.name not in quick]
    marks = {name: [pytest.mark.nightly if i % 4 else pytest.mark.slow] for i, name in enumerate(others)}
    return [pytest.param(x, marks=marks.get(x.name, []), id=x.name) for x in loops]


def slow_and_nightly(loops: Iterable[Loop]) -> list[Any]:
    """A search moves loops as the hand does, so that few of them are searched before every landing."""
    return [
        pytest.param(x, marks=[pytest.mark.slow if x.name in SEARCHED else pytest.mark.nightly], id=x.name)
        for x in loops
    ]


def asked(judge: Measurer, way: str, loop: Loop) -> dict[str, Any]:
    found = judge.ask(way, loop.name)
    assert "skipped" not in found, found
    return found


@pytest.mark.parametrize("loop", quick_and_slow(INSIDE))
def test_a_loop_that_is_moved_by_hand_trains_as_it_does_alone(loop: Loop, judge: Measurer) -> None:
    """Untouched, placed by one random mapping, moved to another one, untouched, and placed once more."""
    found = asked(judge, "moved", loop)
    assert found["different"] == []
    assert found["placed"] > 0 and found["mappings"] >= 3
    assert found["variables"] > 0 and found["repeated"] == 0
    assert found["alone"] == [] and found["said"] == []


@pytest.mark.parametrize("loop", quick_and_slow([loop for loop in INSIDE if loop.divided], ()))
def test_a_loop_whose_ops_are_divided_trains_as_it_does_alone(loop: Loop, judge: Measurer) -> None:
    """As above, but each mapping divides ops and variables by another plan: what is left to differ is rounding, which
    plain gradient descent does not amplify in so many steps. A lost update would show in the first digits.
    """
    found = asked(judge, "divided", loop)
    assert found["different"] == []
    assert found["placed"] > 0 and found["mappings"] >= 3
    assert found["variables"] > 0
    assert found["alone"] == [] and found["said"] == []


@pytest.mark.parametrize("loop", slow_and_nightly(INSIDE))
def test_a_loop_under_a_search_trains_as_it_does_alone(loop: Loop, judge: Measurer) -> None:
    found = asked(judge, "searched", loop)
    assert found["different"] == []
    kinds = [kind for kind, _ in found["journal"]]
    assert found["alone"] == [] and found["said"] == [], found
    assert found["placed"] > 0 and found["mappings"] > 0
    assert kinds.count("end") == loop.steps, found["journal"]  # on a busy machine the untouched step may win
    assert found["repeated"] == 0


@pytest.mark.parametrize("loop", quick_and_slow(OUTSIDE, ("summary",)))
def test_a_loop_that_is_left_alone_trains_as_it_does_alone_and_says_why_once_for_each_step(
    loop: Loop, judge: Measurer
) -> None:
    found = asked(judge, "searched", loop)
    assert found["different"] == []
    assert found["placed"] == 0
    assert len(found["alone"]) == loop.steps and all(loop.alone in why for why in found["alone"]), found["alone"]
    assert len(found["said"]) == loop.steps and any(loop.alone in line for line in found["said"]), found["said"]


@pytest.mark.slow
@pytest.mark.workers
@pytest.mark.parametrize("name", [pytest.param("generator_gan", marks=pytest.mark.nightly), "partial_batch"])
def test_a_loop_over_two_workers_trains_as_it_does_alone(judge: Measurer, name: str) -> None:
    """Workers are joined in a process that ends with this test. A partial batch comes first while they are joined."""
    with Measurer(Judge, Caps(LIMIT_S)) as own:
        found = asked(own, "on_workers", LOOPS[name])
    assert found["different"] == []
    assert found["placed"] > 0 and found["alone"] == []
