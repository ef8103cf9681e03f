"""Draws a step's graph before and after ops are divided, each op in the colour of its device.

`python -m experiments.report.plots.split docs/split.png` draws the picture of the guide: a small dense net, divided by
examples over two devices.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from experiments.report.plots.picture import COLOURS, save_picture
from placer.graph.op_graph import Op, OpGraph

SHARED, CROSSES = "#8c8c8c", "#e45756"
HIDDEN = {"VarHandleOp"}  # drawn as part of the reads
WIDE, TALL = 0.92, 0.62  # of a box, in columns and rows
COLUMN_IN, ROW_IN = 0.86, 0.52
SWEEPS = 6


def draw(graphs: Sequence[tuple[str, OpGraph]], device_of: Callable[[Op], int], path: Path) -> None:
    """Draw graphs one above the other, with data flowing to the right. device_of: op -> number of its device.

    Raises PlacerError if the file cannot be written.
    """
    found_at = [places(graph, device_of) for _, graph in graphs]
    rows = [1 + max(y for _, y in found.values()) - min(y for _, y in found.values()) for found in found_at]
    wide = 1 + max(x for found in found_at for x, _ in found.values())
    size_in = COLUMN_IN * wide + 0.4, ROW_IN * sum(rows) + 0.5 * len(rows) + 0.5

    def fill(figure: Any) -> None:
        axes = figure.subplots(len(graphs), 1, squeeze=False, height_ratios=rows)[:, 0]
        for ax, (title, graph), found in zip(axes, graphs, found_at, strict=True):
            _draw_graph(ax, graph, found, device_of, wide)
            ax.set_title(title, loc="left", fontsize=10)
        _legend(figure, max(device_of(op) for _, graph in graphs for op in graph.ops))

    save_picture(path, size_in, fill, dpi=130)


def _shown(graph: OpGraph) -> list[int]:
    return [v for v, op in enumerate(graph.ops) if op.type not in HIDDEN]


def _edges(graph: OpGraph) -> list[tuple[int, int, bool]]:
    """(src, dst, whether a tensor passes) of each edge between shown ops."""
    shown, last = set(_shown(graph)), [len(op.shapes) for op in graph.ops]
    found = {(e.src, e.dst): e.output_index < last[e.src] for e in graph.edges if {e.src, e.dst} <= shown}
    return [(src, dst, data) for (src, dst), data in found.items()]


def places(graph: OpGraph, device_of: Callable[[Op], int]) -> dict[int, tuple[int, float]]:
    """(column, row) of each op that is drawn, by its index. Data flows to the right, each op is as near to its users as
    that allows, and each device has a band of rows.
    """
    before: dict[int, list[int]] = {v: [] for v in _shown(graph)}
    after: dict[int, list[int]] = {v: [] for v in before}
    for src, dst, _ in _edges(graph):
        before[dst].append(src)
        after[src].append(dst)
    column: dict[int, int] = {}
    order = [v for v in graph.order if v in before]
    for v in order:
        column[v] = 1 + max((column[u] for u in before[v]), default=-1)
    for v in reversed(order):
        column[v] = min((column[u] - 1 for u in after[v]), default=column[v])
    return {v: (column[v], row) for v, row in _rows(graph, column, before, after, device_of).items()}


def _rows(
    graph: OpGraph,
    column: dict[int, int],
    before: dict[int, list[int]],
    after: dict[int, list[int]],
    device_of: Callable[[Op], int],
) -> dict[int, float]:
    """A row for each op, near the rows of the ops that it is connected with; those of one column and device differ."""
    boxes: dict[tuple[int, int], list[int]] = {}
    for v in before:
        boxes.setdefault((device_of(graph.ops[v]), column[v]), []).append(v)
    highest: dict[int, int] = {}
    for (device, _), ops in boxes.items():
        highest[device] = max(highest.get(device, 0), len(ops))
    first = {device: sum(n for other, n in highest.items() if other < device) for device in highest}
    row = {v: first[device] + float(i) for (device, _), ops in boxes.items() for i, v in enumerate(ops)}
    for _ in range(SWEEPS):
        for (device, _), ops in boxes.items():
            near = {v: [row[u] for u in (*before[v], *after[v])] or [row[v]] for v in ops}
            ops.sort(key=lambda v: sum(near[v]) / len(near[v]))
            gap = (highest[device] - len(ops)) / 2
            row |= {v: first[device] + gap + i for i, v in enumerate(ops)}
    return row


def _draw_graph(
    ax: Any, graph: OpGraph, found: dict[int, tuple[int, float]], device_of: Callable[[Op], int], wide: float
) -> None:
    from matplotlib.patches import FancyBboxPatch

    for src, dst, data in _edges(graph):
        (x, y), (to_x, to_y) = found[src], found[dst]
        crosses = device_of(graph.ops[src]) != device_of(graph.ops[dst])
        line = {"color": CROSSES if crosses else "#9a9a9a", "linewidth": 1.1 if crosses else 0.7}
        arrow = {"arrowstyle": "-|>", "mutation_scale": 6, "shrinkA": 0, "shrinkB": 0, **line}
        if not data:
            arrow["linestyle"] = ":"
        ends = {"xy": (to_x - WIDE / 2, to_y), "xytext": (x + WIDE / 2, y)}
        ax.annotate("", **ends, arrowprops=arrow, zorder=1)
    for v, (x, y) in found.items():
        op = graph.ops[v]
        style: dict[str, Any] = {"facecolor": COLOURS[device_of(op)], "edgecolor": "white", "linewidth": 0.5}
        corner = (x - WIDE / 2 + 0.06, y - TALL / 2 + 0.06)
        box = FancyBboxPatch(corner, WIDE - 0.12, TALL - 0.12, boxstyle="round,pad=0.06", zorder=2, **style)
        ax.add_patch(box)
        ax.text(x, y, _wrapped(op.type), ha="center", va="center", fontsize=5.6, color="white", zorder=3)
    rows = [y for _, y in found.values()]
    ax.set(xlim=(-0.6, wide - 0.4), ylim=(max(rows) + 0.6, min(rows) - 0.6))
    ax.set_axis_off()


def _wrapped(name: str) -> str:
    """A type in lines of at most eleven letters, broken before capitals."""
    lines = [""]
    for word in re.findall(r"[A-Z0-9]+[a-z0-9]*|[a-z0-9]+", name):
        if lines[-1] and len(lines[-1]) + len(word) > 11:
            lines.append("")
        lines[-1] += word
    return "\n".join(lines)


def _legend(figure: Any, most: int) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    devices = [Patch(facecolor=COLOURS[i], label=f"worker:{i}") for i in range(most + 1)]
    line = Line2D([], [], color=CROSSES, linewidth=1.1, label="from one to the other")
    figure.legend(handles=[*devices, line], loc="outside lower center", ncols=4, frameon=False, fontsize=8)


def example() -> list[tuple[str, OpGraph]]:
    """A training step of two dense layers: whole, and divided by examples into two parts."""
    import tensorflow as tf

    from placer.splits.step import split_step
    from placer.splits.step_graph import StepGraph
    from placer.trace.capture import capture
    from search.splits.candidates import plan_by
    from search.splits.propagate import Rates

    first, second = tf.Variable(tf.ones([16, 32])), tf.Variable(tf.ones([32, 4]))

    def step(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((tf.nn.relu(x @ first) @ second - y) ** 2)
        for variable, gradient in zip((first, second), tape.gradient(loss, (first, second)), strict=True):
            variable.assign_sub(0.1 * gradient)
        return loss

    captured = capture(step, (tf.ones([8, 16]), tf.ones([8, 4])), "dense")
    graph = StepGraph(captured.graph_def)
    costs = Rates({op.name: 1.0 for op in graph.order}, 1e-9, 1e-9)  # moving data is cheap
    plan = plan_by("batch", graph, {op.name: op.phase for op in captured.graph.ops}, costs, 2)
    divided = split_step(captured, plan, graph).captured.graph
    return [
        (f"Before: {len(captured.graph)} ops", captured.graph),
        (f"After: {len(divided)} ops, each device takes half of the examples", divided),
    ]


if __name__ == "__main__":
    draw(example(), lambda op: op.part or 0, Path(sys.argv[1] if len(sys.argv) > 1 else "docs/split.png"))
