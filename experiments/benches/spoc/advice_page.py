"""The part of the page of the bench `spoc` on whether the sentences of `placer spoc` are true."""

from __future__ import annotations

from experiments.benches.bench import Facts
from experiments.report.text import markdown_table

WHATS = {"batch": "a bigger batch", "devices": "more devices", "split": "split ops"}


def advice_lines(facts: Facts) -> list[str]:
    """How sentences were tried, a table by sentence, and the rule for batches over all pairs of measured batches."""
    found = facts["advice"]
    counted = f"Right / wrong in all: {totals(found)}."
    return [
        _how(found), "", *_table(found), "", counted, *_bounds(found), *_skipped(found), *_pairs(found["pairs"]),
    ]  # fmt: skip


def _bounds(found: Facts) -> list[str]:
    """How often more devices gained more than the advice says that they can; empty for a record without bounds."""
    known = [row for row in found["networks"] if row.get("bound")]
    over = [f"`{row['name']}` ({row['devices']:.2f}x, bound {row['bound']:.2f}x)" for row in known
            if row["devices"] > row["bound"]]  # fmt: skip
    if not known:
        return []
    which = f": {', '.join(over)}" if over else ""
    return [f"More devices gained more than the bound that the advice gives on {len(over)} of {len(known)}{which}."]


def totals(found: Facts) -> str:
    """How often the sentences that mention each promise were right and wrong."""
    counts = {
        what: [sum(told[what][key] or 0 for told in found["sentences"].values()) for key in ("right", "wrong")]
        for what in WHATS
    }
    return ", ".join(f"{WHATS[what]} {right} / {wrong}" for what, (right, wrong) in counts.items())


def _how(found: Facts) -> str:
    least = found["helps"]
    return (
        f"The sentences of `placer spoc`, tried on {len(found['networks'])} networks, "
        "drawn only from those that are not heavy. *A bigger batch* helps where "
        f"{found['times']} times the examples make a training step do at least {least['batch']:.1f} times as many a "
        "second, on all cores. *More devices* help where a process with all cores, but one core per op, is at least "
        f"{least['devices']:.1f} times as fast as one core: an upper bound of what placing ops on one-core devices can "
        f"give, because nothing is sent. *Split ops* help where all cores are at least {least['split']:.1f} times as "
        "fast as one. Right and wrong are counted where the sentence speaks of it, and medians are given everywhere."
    )


def _table(found: Facts) -> list[str]:
    rows = [
        [sentence, str(sum(row["limit"] == sentence for row in found["networks"])),
         *(_cell(told[what]) for what in WHATS)]
        for sentence, told in found["sentences"].items()
    ]  # fmt: skip
    return markdown_table(("sentence", "networks", *WHATS.values()), rows)


def _cell(told: Facts) -> str:
    if told["median"] is None:
        return "-"
    if told["says"] is None:
        return f"not said, median {told['median']:.2f}x"
    says = "will help" if told["says"] else "will not"
    return f"{says}: {told['right']} right, {told['wrong']} wrong, median {told['median']:.2f}x"


def _skipped(found: Facts) -> list[str]:
    names = [f"{row['name']} ({row['skipped']})" for row in found["skipped"]]
    return ["", f"Not tried: {', '.join(names)}."] if names else []


def _pairs(pairs: Facts) -> list[str]:
    if not pairs["n"]:
        return []
    right = pairs["says_right"] + pairs["denies_right"]
    return [
        "",
        f"Of {pairs['n']} pairs of networks that differ in their batch only, the rule for launch-bound steps (less "
        f"than {pairs['launch_operations'] / 1e6:.1f} MFLOP an op) is right about {right}: a bigger batch helped "
        f"{pairs['says_right']} of the {pairs['says']} that it calls so, and "
        f"{pairs['n'] - pairs['says'] - pairs['denies_right']} of the others.",
    ]
