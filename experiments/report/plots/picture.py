"""Picture files: their formats, how they are written, and how their axes look.

matplotlib is loaded when the first picture is drawn.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterable, Sequence
from io import BytesIO
from math import log10
from pathlib import Path
from typing import Any

from placer.errors import BadInputError
from placer.files import write_whole

FORMATS = (".png", ".svg", ".pdf")
COLOURS = ("#4c78a8", "#f58518", "#54a24b", "#e45756", "#72b7b2", "#b279a2", "#9d755d", "#2f6f4f")
# Least and most decades of an axis with numbers at 1, 2 and 5; how many numbers a shorter axis has.
LEAST_FULL, MOST_FULL, FEW = 0.7, 2.0, 4
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*", "<", ">")


def check_picture(path: Path | None, option: str = "--gantt") -> None:
    """Raises BadInputError, before any work is done, for a file whose ending is not a picture's."""
    if path is not None and path.suffix.lower() not in FORMATS:
        raise BadInputError(f"{path}: a picture ends in {', '.join(FORMATS)}; give {option} such a name.")


def save_picture(path: Path, size_in: tuple[float, float], fill: Callable[[Any], None], dpi: int) -> None:
    """Write what `fill` draws on a figure of `size_in` inches, in the format of the path's ending.

    Raises PlacerError if it cannot be written.
    """
    write_whole(path, picture_bytes(path.suffix[1:].lower(), size_in, fill, dpi))


def picture_bytes(format: str, size_in: tuple[float, float], fill: Callable[[Any], None], dpi: int) -> bytes:
    """The picture that `fill` draws on a figure of `size_in` inches, in a format such as "png"."""
    logging.getLogger("matplotlib").setLevel(logging.ERROR)  # it reports its font cache
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    file = BytesIO()
    # Names are not formulas. The warnings are about letters that the font lacks, which are drawn as boxes.
    with rc_context({"text.parse_math": False, "hatch.linewidth": 0.6}), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        figure = Figure(figsize=size_in, layout="constrained")
        fill(figure)
        figure.savefig(file, format=format, dpi=dpi)
    return file.getvalue()


def plain_axes(ax: Any) -> None:
    """Draw a light grid behind everything, and no frame above and to the right."""
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
    ax.grid(color="#e6e6e6", linewidth=0.6)
    ax.set_axisbelow(True)


def light_grid(ax: Any, title: str, axis: str = "both") -> None:
    """Draw a title, and a light grid behind everything."""
    ax.set_title(title, fontsize=11)
    ax.grid(axis=axis, color="#eeeeee")
    ax.set_axisbelow(True)


def diagonal(ax: Any, values: Iterable[float], low: float, high: float) -> None:
    """Set equal axes from `low` times the least value to `high` times the largest, and draw the line of equality."""
    every = list(values)
    ends = low * min(every), high * max(every)
    ax.plot(ends, ends, color="#999999", linewidth=0.8, zorder=1)
    ax.set(xlim=ends, ylim=ends, aspect="equal")


def plain_log(ax: Any) -> None:
    """Make axes logarithmic with plain numbers, because matplotlib's own labels are formulas, which pictures do not
    parse. The ends of the axes must be set before.
    """
    from matplotlib.ticker import LogLocator, MaxNLocator

    ax.set(xscale="log", yscale="log")
    for axis in (ax.xaxis, ax.yaxis):
        low, high = axis.get_view_interval()
        decades = log10(high / low)
        subs = (1.0, 2.0, 5.0) if decades <= MOST_FULL else (1.0,)
        axis.set_major_locator(MaxNLocator(FEW) if decades < LEAST_FULL else LogLocator(subs=subs))
        axis.set_major_formatter(lambda value, _: f"{value:g}")
        axis.set_minor_formatter(lambda *_: "")


def name_rows(ax: Any, names: Sequence[str], bold: str | None = None, **style: Any) -> None:
    """Write names along the left edge, the first on top. bold: the name that is bold, if any."""
    ax.set_yticks(range(len(names)), names, **style)
    for label, name in zip(ax.get_yticklabels(), names, strict=True):
        label.set_fontweight("bold" if name == bold else "normal")
    ax.invert_yaxis()
