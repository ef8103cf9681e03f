"""The part of BENCHMARKS.md of the bench simulator-speed."""

from __future__ import annotations

from collections.abc import Iterator

from experiments.benches.bench import Facts
from experiments.benches.simulator_speed.run import DEVICES, EDGES, OPS


def page(facts: Facts) -> list[str]:
    """Speed by contention, HEFT by size, and the agreement of screening."""
    return [*_speed_table(facts), "", *_heft_table(facts), "", *_agreement_table(facts)]


def _speed_table(facts: Facts) -> Iterator[str]:
    yield (
        f"Random layered graphs, {OPS:,} ops, {EDGES:,} edges, {DEVICES} devices, schedule `rank`, random mappings. "
        f"Microseconds a mapping: medians of {facts['repeats']} repeats in turn, with the interquartile range."
    )
    yield ""
    yield f"| contention | exact, one core | exact, {facts['cores']} cores | fixed order | plain Python | ratio |"
    yield "| --- | ---: | ---: | ---: | ---: | ---: |"
    for kind, row in facts["by_contention"].items():
        cells = [_us(row[name]) for name in ("exact_us", "all_cores_us", "screen_us", "plain_us")]
        ratio = row["plain_us"]["median"] / row["exact_us"]["median"]
        yield f"| {kind} | {' | '.join(cells)} | {ratio:.0f} |"
    yield ""
    first_ms = facts["first_makespan_s"] * 1e3
    yield f"All cores: {facts['mappings_per_s_1000']:,.0f} mappings/s. First makespan of a process: {first_ms:.0f} ms."


def _heft_table(facts: Facts) -> Iterator[str]:
    yield "| ops | HEFT | Donf | tables from the graph |"
    yield "| ---: | ---: | ---: | ---: |"
    for ops, row in facts["by_ops"].items():
        heft_ms, donf_ms = (f"{row[name]['median'] * 1e3:.2f} ms" for name in ("heft_s", "donf_s"))
        yield f"| {int(ops):,} | {heft_ms} | {donf_ms} | {row['tables_s'] * 1e3:.0f} ms |"


def _agreement_table(facts: Facts) -> Iterator[str]:
    yield "| schedule | mappings | Kendall tau of screening | of the best 1 % in the screened best 10 % |"
    yield "| --- | --- | ---: | ---: |"
    for schedule, rows in facts["screening"].items():
        for name, row in rows.items():
            yield f"| {schedule} | {name} | {row['kendall_tau']:.2f} | {row['top_1_in_top_10']:.0%} |"


def _us(spread: Facts) -> str:
    return f"{spread['median']:.1f} +- {spread['iqr']:.1f}"
