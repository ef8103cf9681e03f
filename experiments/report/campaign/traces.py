"""The predicted step of each case's best mapping for Perfetto, in the format that `--trace` writes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from experiments.campaign.cells import Case
from experiments.campaign.store import CampaignStore, Held
from experiments.report.campaign.best import GoneError, best_of
from experiments.report.campaign.scalars import file_names
from placer.errors import PlacerError, raise_last, tried
from placer.files import write_whole


def write_traces(store: CampaignStore, cases: Mapping[str, Case], folder: Path) -> tuple[int, dict[str, str]]:
    """Write CASE.json for each case to the folder. Return the number of files, and for each other case why it has none.

    cases: those of the spec, by key. Raises PlacerError, once all others are written, if a file cannot be written.
    """
    cells: dict[str, list[Held]] = {}
    for held in store.held():
        cells.setdefault(held.case_key, []).append(held)
    left_out, names = {}, file_names(cells)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise PlacerError(f"{folder}: cannot be written ({error.strerror}).") from None
    failures: list[Exception] = []
    for key, found in cells.items():
        try:
            best = best_of(key, found, cases, store)
        except GoneError as gone:
            left_out[key] = str(gone)
            continue
        trace = best.after.to_trace(f"{key}: best mapping, predicted")
        failures += tried(partial(write_whole, folder / f"{names[key]}.json", json.dumps(trace).encode()))
    raise_last(failures)
    return len(cells) - len(left_out), left_out
