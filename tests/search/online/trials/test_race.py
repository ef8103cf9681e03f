"""Which modes a race steps, in which order, and which steps count."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from placer.train.steps.modes import Mode
from search.online.interfaces import Steps
from search.online.trials.race import measured, race, sample


def run(script: Steps, step_s: Mapping[str, float]) -> tuple[str, object]:
    """The modes that the script yields, one after another, and what it returns. step_s: seconds by mode."""
    asked = ""
    try:
        mode = next(script)
        while True:
            asked += mode
            mode = script.send(step_s[mode])
    except StopIteration as end:
        return asked, end.value


def modes(names: str) -> list[Mode]:
    return list(names)  # type: ignore[arg-type]  # a race never looks into a mode


def sampled(taken: Sequence[float], *arguments: float) -> list[float] | None:
    """What a sample of a mode returns whose steps take these seconds, all of which it has to ask for."""
    (mode,) = modes("A")
    script = sample(mode, *arguments)  # type: ignore[arg-type]
    assert next(script) == mode
    for step_s in taken[:-1]:
        assert script.send(step_s) == mode
    try:
        script.send(taken[-1])
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
    return None


def test_the_first_step_of_a_sample_does_not_count() -> None:
    assert sampled([9.0, 1.0, 2.0, 3.0], 3) == [1.0, 2.0, 3.0]


def test_who_is_clearly_slower_has_no_second_turn() -> None:
    asked, took = run(race(modes("ABC"), 6), {"A": 1.0, "B": 2.0, "C": 1.0})
    assert asked == "AAAA BBBB CCCC AAAA CCCC".replace(" ", "")
    assert took == {"A": [1.0] * 6, "B": [2.0] * 3, "C": [1.0] * 6}


def test_one_that_leads_clearly_needs_no_second_turn() -> None:
    asked, _ = run(race(modes("AB"), 6), {"A": 1.0, "B": 0.5})
    assert asked == "AAAA BBBB".replace(" ", "")


def test_two_hopeless_steps_in_a_row_end_a_turn() -> None:
    """They take three times as long as the median of the first mode."""
    asked, took = run(race(modes("AB"), 6, hopeless=3.0), {"A": 1.0, "B": 3.5})
    assert asked == "AAAA BBB".replace(" ", "")
    assert took == {"A": [1.0] * 3, "B": [3.5] * 2}


def test_a_straggler_ends_no_turn() -> None:
    assert sampled([1.0, 9.0, 1.0, 9.0, 1.0, 1.0], 5, 2.0) == [9.0, 1.0, 9.0, 1.0, 1.0]


def test_a_result_of_fewer_steps_than_wanted_was_stopped_early() -> None:
    assert [measured([1.0] * steps, 4, 8).stopped_early for steps in (2, 4, 6, 8)] == [True, False, True, False]
