"""Timelines as panels of a page: short pieces of work are gathered, so that a page stays small and quick."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator

from placer.graph.op_graph import PHASES
from search.page.record import Bar, Lane, Panel
from surrogate.simulate.timeline import Timeline

MOST_COLUMNS = 600  # columns of a panel; pieces of work shorter than a column are gathered
MOST_BARS = 4000
DIGITS = 9  # times are drawn to the nanosecond
MOST_LINKS = 12  # only the busiest are shown
OTHER = "other"
SEND, RECEIVE, TRANSFER = "send", "receive", "transfer"
KINDS = (*PHASES, OTHER, SEND, RECEIVE, TRANSFER)


def panel_of(name: str, timeline: Timeline, most_bars: int = MOST_BARS) -> Panel:
    """The panel of one step, with at most `most_bars` bars if bars do not overlap: each bar of a lane is at least a
    column long, or stands for all short pieces that begin in a column.
    """
    lanes, pieces = _lanes(timeline)
    column_s = timeline.makespan_s / min(MOST_COLUMNS, max(1, most_bars // (2 * len(lanes))))
    bars = tuple(bar for lane in range(len(lanes)) for bar in _gathered(pieces[lane], column_s))
    return Panel(name, timeline.makespan_s, lanes, bars)


def _lanes(timeline: Timeline) -> tuple[tuple[Lane, ...], dict[int, list[Bar]]]:
    """Return the lanes (devices, then the busiest links), and the pieces of work by lane."""
    pieces: dict[int, list[Bar]] = defaultdict(list)
    ops = timeline.graph.ops
    for span in timeline.spans:
        kind = (ops[span.op].phase or OTHER) if span.work == "op" else span.work
        pieces[span.device].append(_piece(span.device, kind, ops[span.op].name, span.start_s, span.end_s))
    links, lane_of = _links(timeline)
    for t in timeline.transfers:
        if (t.src, t.dst) in lane_of:
            lane = lane_of[t.src, t.dst]
            pieces[lane].append(_piece(lane, TRANSFER, ops[t.op].name, t.start_s, t.end_s))
    devices = tuple(Lane(name, (d,)) for d, name in enumerate(timeline.topology.names))
    return (*devices, *links), pieces


def _links(timeline: Timeline) -> tuple[list[Lane], dict[tuple[int, int], int]]:
    busy_s: dict[tuple[int, int], float] = defaultdict(float)
    for t in timeline.transfers:
        busy_s[t.src, t.dst] += t.end_s - t.start_s
    shown = sorted(sorted(busy_s, key=lambda ends: -busy_s[ends])[:MOST_LINKS])
    names = timeline.topology.names
    lanes = [Lane(f"{names[src]} → {names[dst]}", (src, dst)) for src, dst in shown]
    return lanes, {ends: len(names) + i for i, ends in enumerate(shown)}


def _piece(lane: int, kind: str, label: str, start_s: float, end_s: float) -> Bar:
    start_s, end_s = round(start_s, DIGITS), round(end_s, DIGITS)
    return Bar(lane, kind, label, start_s, end_s, round(end_s - start_s, DIGITS))


def _gathered(pieces: Iterable[Bar], column_s: float) -> Iterator[Bar]:
    """Yield pieces at least a column long as they are, and one bar for all shorter pieces that begin in a column."""
    columns: dict[int, list[Bar]] = defaultdict(list)
    for piece in pieces:
        if piece.busy_s >= column_s:
            yield piece
        elif piece.busy_s > 0:
            columns[int(piece.start_s / column_s)].append(piece)
    for short in columns.values():
        yield short[0] if len(short) == 1 else _joined(short)


def _joined(pieces: list[Bar]) -> Bar:
    """One bar of the kind that takes most of the seconds, named after the longest piece."""
    seconds: Counter[str] = Counter()
    for piece in pieces:
        seconds[piece.kind] += piece.busy_s  # type: ignore[assignment]
    longest = max(pieces, key=lambda piece: piece.busy_s)
    start_s, end_s = min(piece.start_s for piece in pieces), max(piece.end_s for piece in pieces)
    kind = seconds.most_common(1)[0][0]
    busy_s = round(min(seconds.total(), end_s - start_s), DIGITS)
    return Bar(longest.lane, kind, longest.label, start_s, end_s, busy_s, len(pieces))
