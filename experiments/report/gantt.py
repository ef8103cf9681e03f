"""Gantt charts of simulated or measured steps, as facts and as text; experiments/report/plots/gantt.py draws them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from collections.abc import Mapping as MappingABC
from dataclasses import dataclass
from itertools import groupby
from math import ceil
from typing import NamedTuple

from experiments.report.text import printable
from placer.graph.op_graph import PHASES, Op
from placer.number_format import short_ms
from surrogate.operators.features import family_of
from surrogate.simulate.timeline import Rows, Timeline

OTHER, SEND, RECEIVE, TRANSFER = "other", "send", "receive", "transfer"
MOST_KINDS = 8  # colours that can still be told apart
MOST_LINKS, MOST_LINKS_IN_TEXT = 16, 6  # only the busiest are shown
COLUMNS = 700  # of a picture; a bar that is narrower than one is a sliver
STEPS = 4  # heights that a sliver may have
MOST_ROWS = 4  # of one lane; more would be too thin to see
LEGEND = "a column is {}; name--- one op, = short ops, : fewer of them, > sends, < receives, . idle"


class Bar(NamedTuple):
    """Work of one kind from start_s to end_s, drawn from `base` to `base + height` of its lane's height.

    A sliver shows many pieces of work, or one that is too narrow to be drawn. short: the label if there is little
    room.
    """

    kind: str
    start_s: float
    end_s: float
    label: str = ""
    base: float = 0.0
    height: float = 1.0
    is_sliver: bool = False
    short: str = ""

    def label_in(self, room: int) -> str:
        """The longest of its labels that has at most `room` letters; empty if none fits."""
        labels = (self.label, self.label.rpartition("/")[2], self.short)
        return next((label for label in labels if len(label) <= room), "")


class Lane(NamedTuple):
    """A device or a link, and what it does."""

    name: str
    is_link: bool
    busy: float  # busy seconds / makespan, above 1 if several things happen at once
    bars: tuple[Bar, ...]  # slivers first, so that they cover nothing


class Panel(NamedTuple):
    """One step."""

    name: str
    makespan_s: float
    lanes: tuple[Lane, ...]


@dataclass(frozen=True)
class Chart:
    """Steps over one time axis, with the same lanes."""

    title: str
    axis_s: float
    kinds: tuple[str, ...]  # those in use, in the legend's order
    panels: tuple[Panel, ...]
    links_left_out: int  # links that were used but are not shown, because others were busier


def gantt_facts(
    title: str, timelines: MappingABC[str, Timeline], columns: int = COLUMNS, links: int = MOST_LINKS
) -> Chart:
    """The chart of `timelines`, {panel name: timeline}, all of one graph on one topology.

    The time axis has `columns`, and a bar is at least one column wide. Narrower bars are gathered: a column shows the
    kind that takes most of it, as high as the busy share of the column, in STEPS steps. At most the `links` busiest
    links are shown.
    """
    axis_s = max(timeline.makespan_s for timeline in timelines.values())
    kind_of = _colouring(timelines.values())
    lanes = {name: _pieces(timeline, kind_of) for name, timeline in timelines.items()}
    shown, left_out = _shown_links(lanes.values(), links)
    panels = []
    for name, timeline in timelines.items():
        names = [(device, False) for device in timeline.topology.names] + [(link, True) for link in shown]
        found = [_lane(key, lanes[name].get(key, []), timeline.makespan_s, axis_s / columns) for key in names]
        panels.append(Panel(name, timeline.makespan_s, tuple(found)))
    used = {bar.kind for panel in panels for lane in panel.lanes for bar in lane.bars}
    return Chart(title, axis_s, tuple(sorted(used, key=_legend_order)), tuple(panels), left_out)


def gantt_text(timeline: Timeline, columns: int) -> str:
    """The step in characters, `columns` wide with the lanes' names.

    gpu:0          |conv1----pool>>.........|  63 %
    gpu:1          |..............<<relu----|  40 %
    gpu:0 -> gpu:1 |............pool........|
    a column is 0.10 ms; ...
    """
    names = [*timeline.topology.names, *{timeline.link_name(t) for t in timeline.transfers}]
    margin = min(max(map(len, names)), columns // 3)
    width = max(columns - margin - len(" ||  100 %"), 8)
    chart = gantt_facts("", {"": timeline}, width, MOST_LINKS_IN_TEXT)
    (panel,) = chart.panels
    rows = []
    for lane in panel.lanes:
        busy = "" if lane.is_link else f" {lane.busy:5.0%}".replace("%", " %")
        rows.append(f"{printable(lane.name, margin):{margin}} |{_row(lane, panel.makespan_s, width)}|{busy}")
    if chart.links_left_out:
        rows.append(f"({chart.links_left_out} links that carried less are left out)")
    return "\n".join([*rows, LEGEND.format(short_ms(timeline.makespan_s / width))])


Key = tuple[str, bool]
"""A lane's name, and whether it is a link."""


def _pieces(timeline: Timeline, kind_of: Callable[[Op], str]) -> dict[Key, list[Bar]]:
    """Everything that takes time, by lane."""
    lanes: dict[Key, list[Bar]] = defaultdict(list)
    names = timeline.topology.names
    for span in timeline.spans:
        op = timeline.graph.ops[span.op]
        kind, label = (kind_of(op), op.name) if span.work == "op" else (span.work, "")
        turn = "" if op.micro_batch is None or not label else str(op.micro_batch)
        lanes[names[span.device], False].append(Bar(kind, span.start_s, span.end_s, label, short=turn))
    for t in timeline.transfers:
        bar = Bar(TRANSFER, t.start_s, t.end_s, timeline.graph.ops[t.op].name)
        lanes[timeline.link_name(t), True].append(bar)
    return lanes


def _shown_links(panels: Iterable[MappingABC[Key, Sequence[Bar]]], most: int) -> tuple[list[str], int]:
    """The links to show, in order of name, and how many are left out."""
    busy_s: Counter[str] = Counter()
    for lanes in panels:
        for (name, is_link), bars in lanes.items():
            if is_link:
                busy_s[name] += sum(_seconds(bar) for bar in bars)  # type: ignore[assignment]
    shown = [name for name, _ in busy_s.most_common(most)]
    return sorted(shown), len(busy_s) - len(shown)


def _lane(key: Key, pieces: Sequence[Bar], makespan_s: float, column_s: float) -> Lane:
    busy = sum(map(_seconds, pieces)) / makespan_s if makespan_s > 0 else 0.0
    wide = [bar for bar in pieces if _seconds(bar) >= column_s > 0]
    slivers = [bar for bar in pieces if 0 < _seconds(bar) < column_s]
    return Lane(*key, busy, (*_gathered(slivers, column_s), *_stacked(wide)))


def _gathered(slivers: Iterable[Bar], column_s: float) -> list[Bar]:
    """One sliver per column; neighbouring slivers of the same kind and height are one bar."""
    busy_s: dict[int, Counter[str]] = defaultdict(Counter)
    for bar in slivers:
        busy_s[int((bar.start_s + bar.end_s) / 2 / column_s)][bar.kind] += _seconds(bar)  # type: ignore[assignment]
    columns = []
    for i, kinds in sorted(busy_s.items()):
        share = min(kinds.total() / column_s, 1.0)
        columns.append((i, kinds.most_common(1)[0][0], ceil(share * STEPS) / STEPS))
    bars = []
    for (_, kind, height), run in groupby(enumerate(columns), lambda at: (at[1][0] - at[0], *at[1][1:])):
        at = [column[0] for _, column in run]
        bars.append(Bar(kind, at[0] * column_s, (at[-1] + 1) * column_s, height=height, is_sliver=True))
    return bars


def _stacked(bars: Iterable[Bar]) -> list[Bar]:
    """Bars that overlap share the lane's height: a | aaaa.cc | above  b | .bbb... |."""
    done: list[Bar] = []
    cluster: list[tuple[int, Bar]] = []
    rows = Rows()
    for bar in sorted(bars, key=lambda bar: bar.start_s):
        if bar.start_s >= rows.end_s:
            done += _shared(cluster, len(rows))
            cluster, rows = [], Rows()
        cluster.append((rows.take(bar.start_s, bar.end_s), bar))
    return done + _shared(cluster, len(rows))


def _shared(cluster: Iterable[tuple[int, Bar]], rows: int) -> list[Bar]:
    shown = min(rows, MOST_ROWS)
    return [bar._replace(base=row % shown / shown, height=1 / shown) for row, bar in cluster]


def _colouring(timelines: Iterable[Timeline]) -> Callable[[Op], str]:
    """The kind of an op: its phase if phases are known, else the family of its type if most time is in known families,
    else its type.

    Only the MOST_KINDS kinds that take most time have a name; the others are OTHER.
    """
    spans = [(t.graph.ops[s.op], s.end_s - s.start_s) for t in timelines for s in t.spans if s.work == "op"]

    def seconds_by(name_of: Callable[[Op], str]) -> Counter[str]:
        total: Counter[str] = Counter()
        for op, seconds in spans:
            total[name_of(op)] += seconds  # type: ignore[assignment]
        return total

    if any(op.phase for op, _ in spans):
        return lambda op: op.phase or OTHER
    by_family = seconds_by(lambda op: family_of(op.type))
    name_of: Callable[[Op], str] = lambda op: op.type or OTHER  # noqa: E731
    if 2 * by_family[OTHER] < by_family.total():
        name_of = lambda op: family_of(op.type)  # noqa: E731
    kept = {name for name, _ in seconds_by(name_of).most_common(MOST_KINDS)}
    return lambda op: name if (name := name_of(op)) in kept else OTHER


def _legend_order(kind: str) -> tuple[int, str]:
    order = (*PHASES, "", OTHER, SEND, RECEIVE, TRANSFER)
    return order.index(kind if kind in order else ""), kind


def _row(lane: Lane, makespan_s: float, width: int) -> str:
    """A lane in `width` characters."""
    row = ["."] * width
    per_s = width / makespan_s if makespan_s > 0 else 0.0
    for bar in lane.bars:
        start, end = round(bar.start_s * per_s), round(bar.end_s * per_s)
        row[start:end] = _letters(bar, end - start)
    return "".join(row[:width])


def _letters(bar: Bar, width: int) -> str:
    if bar.kind in (SEND, RECEIVE):
        return (">" if bar.kind == SEND else "<") * width
    if bar.is_sliver:
        return ("=" if bar.height > 0.5 else ":") * width
    name = bar.label_in(width) or bar.label.rpartition("/")[2]
    return "".join(c if c.isprintable() else "?" for c in name[:width]).ljust(width, "-")


def _seconds(bar: Bar) -> float:
    return bar.end_s - bar.start_s
