"""A campaign for TensorBoard: scalars of each search over its measurements, and the report as text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from math import inf
from pathlib import Path
from typing import Any

from experiments.campaign.standing import best_single_s
from experiments.campaign.store import CampaignStore, Held
from placer.errors import BadInputError, PlacerError
from placer.event_files import PREFIX, header, records, scalars
from placer.files import shortened, write_whole
from placer.result import Measured, fastest_s


def check_tensorboard() -> None:
    """Raises BadInputError if the extra is not installed."""
    try:
        import tensorboard  # noqa: F401
    except ImportError as error:
        raise BadInputError(
            "TensorBoard's files need tensorboard, which is not installed: pip install 'placer[tensorboard]', or "
            "export to .csv."
        ) from error


def write_scalars(store: CampaignStore, folder: Path, report: str) -> int:
    """Write one run for each search, CASE/SEARCHER-SEED, and one with the report; return the number of measurements.

    The files of an earlier export are replaced. Raises PlacerError if a file cannot be written.
    """
    check_tensorboard()
    count = 0
    try:
        cells, times = store.held(), store.times()  # in this order, so that each trial in `cells` has a time
        folders = file_names(held.case_key for held in cells)
        for held in cells:
            single_s = best_single_s(store.opened(held.case_key))
            at = [times[held.key, trial.n] for trial in held.measured]
            run = folder / folders[held.case_key] / f"{held.searcher}-{held.seed}"
            _write(run, _scalars(held, single_s, at))
            count += len(held.measured)
        _write(folder / "report", [_text(report, max(times.values(), default=0.0))])
    except OSError as error:
        raise PlacerError(f"{folder}: cannot be written ({error.strerror}).") from None
    return count


def file_names(keys: Iterable[str]) -> dict[str, str]:
    """A file name for each key, without letters that file names should not have; equal names are numbered."""
    names: dict[str, str] = {}
    for key in dict.fromkeys(keys):
        stem = name = shortened(re.sub(r"[^\w.-]+", "_", key).strip("._") or "_")
        number = 1
        while name in names.values():
            number += 1
            name = f"{stem}~{number}"
        names[key] = name
    return names


def _write(folder: Path, events: list[Any]) -> None:
    """Write one run, and remove earlier exports from its folder. Raises OSError and PlacerError."""
    begin_s = events[0].wall_time if events else 0.0
    path = folder / f"{PREFIX}{int(begin_s):010d}.placer"
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(path, records([header(begin_s), *events]))
    for old in folder.glob(f"{PREFIX}*.placer"):
        if old != path:
            old.unlink()


def _scalars(held: Held, single_s: float, at: list[float]) -> list[Any]:
    """For each measurement, its step time and the best so far, which begins with the best single device."""

    def values() -> Iterator[Any]:
        best_s = single_s
        for count, (trial, wall_s) in enumerate(zip(held.measured, at, strict=True), start=1):
            ran = {"step_s": trial.result.step_s} if isinstance(trial.result, Measured) else {}
            best_s = min(best_s, fastest_s([trial.result]))
            yield scalars(wall_s, count, ran | ({"best_so_far_s": best_s} if best_s < inf else {}))

    return list(values())


def _text(report: str, wall: float) -> Any:
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.plugins.text.metadata import create_summary_metadata
    from tensorboard.util.tensor_util import make_tensor_proto

    told = Summary.Value(
        tag="report",
        metadata=create_summary_metadata(display_name="report", description="placer campaign report"),
        tensor=make_tensor_proto(report.encode()),
    )
    return Event(wall_time=wall, step=0, summary=Summary(value=[told]))
