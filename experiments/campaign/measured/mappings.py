"""The best mapping of each measured case of a store, as a file that `placer.place` takes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from experiments.campaign.cells import MEASURED
from experiments.campaign.measured.profiled import StoredProfile
from experiments.campaign.rows import ERRORS, lead
from experiments.campaign.store import PROFILE, CampaignStore, Held
from placer.errors import BadInputError, PlacerError
from placer.files import shortened
from placer.graph.mapping import Mapping
from placer.graph.mapping_files import MappingFile, mapping_file, write_mapping

NOT_YET = "its best mapping was not measured side by side with its baselines yet; go on with placer campaign run"


def check_folder(folder: Path) -> None:
    """Raises BadInputError, before anything is written, if mappings cannot be written to the folder."""
    try:
        is_other = folder.exists() and not folder.is_dir()
    except OSError as error:
        raise BadInputError(f"--best {folder}: {error.strerror}; name another folder.") from None
    if is_other:
        raise BadInputError(f"--best {folder}: is no folder; name another.")


def write_best(store: CampaignStore, folder: Path) -> tuple[dict[str, str], dict[str, str], list[Exception]]:
    """Write the best mapping of each measured case to the folder. Only mappings that were measured side by side with
    their baselines are written.

    Returns {case: file}, why other measured cases have none, and the errors of cases that have one that could not be
    written. Raises PlacerError if there is nothing to write.
    """
    measured = [held for held in store.held() if held.kind == MEASURED]
    cells = [held for held in measured if held.final and not held.lacks_final]
    cases = list(dict.fromkeys(held.case_key for held in cells))
    if not cases:
        raise PlacerError(
            f"{store.path} has no measured cell that has come to its end; go on with placer campaign run, or leave "
            "--best out."
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInputError(f"--best {folder}: {error.strerror}; name another folder.") from None
    names, written, failures = _file_names(cases), dict[str, str](), list[Exception]()
    for case in cases:
        try:
            write_mapping(folder / names[case], _best(store, case, [held for held in cells if held.case_key == case]))
        except ERRORS as error:
            failures.append(PlacerError(f"{store.path} is damaged: of {case}, {type(error).__name__}: {error}."))
        except PlacerError as error:
            failures.append(error)
        else:
            written[case] = str(folder / names[case])
    left_out = {held.case_key: NOT_YET for held in measured if held.case_key not in cases}
    return written, left_out, failures


def _best(store: CampaignStore, case: str, cells: Sequence[Held]) -> MappingFile:
    """The best mapping of the case's cell that is the farthest ahead of the single device measured beside it."""
    held = max(cells, key=_lead)
    final, content, opened = held.final or {}, store.content(case, PROFILE), store.opened(case) or {}
    if content is None:
        raise LookupError("its profile is missing")
    # The run order is part of what was measured. It follows from the costs as the search had corrected them.
    calibration = (opened if held.state is None else held.state).get("calibration")
    prediction = StoredProfile.decoded(content).calibrated(calibration)
    groups = prediction.groups
    found = groups.expand_mapping(Mapping(groups.graph, prediction.topology, tuple(final["devices"])))
    return mapping_file(
        found,
        objective="makespan",
        measured_s=final["best_s"],
        spread_s=final["spread_s"],
        repeats=final["repeats"],
        baseline={
            "best_single": final["best_single_s"],
            "tf_default": final["untouched_s"],
            "in_process": opened.get("untouched_s"),
        },
        lower_bound_s=opened.get("bound_s"),
        seed=held.seed,
        searcher=held.searcher,
        order=prediction.order(found),
    )


def _lead(held: Held) -> tuple[bool, float]:
    final = held.final or {}
    return lead(final["best_s"], final["best_single_s"])


def _file_names(cases: Sequence[str]) -> dict[str, str]:
    """A file name for each case, made from the case's name; equal file names are numbered."""
    names: dict[str, str] = {}
    for case in cases:
        stem = shortened(re.sub(r"[^\w.@-]+", "-", case).strip("-"))
        taken = sum(name.partition("~")[0].removesuffix(".json") == stem for name in names.values())
        names[case] = f"{stem}~{taken + 1}.json" if taken else f"{stem}.json"
    return names
