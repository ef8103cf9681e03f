"""The measurements of a campaign for other programs: tables, an Optuna study, TensorBoard, Perfetto."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from experiments.campaign.export import export as write_table
from experiments.campaign.spec import Spec
from experiments.campaign.store import CampaignStore
from experiments.report.campaign.optuna_study import optuna, write_studies
from experiments.report.campaign.report import MARKDOWN, report_content
from experiments.report.campaign.scalars import check_tensorboard, write_scalars
from experiments.report.campaign.traces import write_traces
from placer.errors import BadInputError, PlacerError, short
from placer.files import check_not_read, check_outputs, parquet

CSV, PARQUET, OPTUNA, TENSORBOARD, PERFETTO = "csv", "parquet", "optuna", "tensorboard", "perfetto"
FORMATS = (CSV, PARQUET, OPTUNA, TENSORBOARD, PERFETTO)
ENDINGS = {".csv": CSV, ".parquet": PARQUET, ".db": OPTUNA}
TABLES, FOLDERS = (CSV, PARQUET), (TENSORBOARD, PERFETTO)


def check_export(out: str, format: str | None, inputs: Sequence[Path] = ()) -> str:
    """The format that `format` or the name `out` means. Raises BadInputError, also if the format's extra is missing, or
    if `out` is one of the `inputs`.
    """
    if format is not None and format not in FORMATS:
        raise BadInputError(f"--format is {short(format)}; choose one of {', '.join(FORMATS)}.")
    meant = format or (OPTUNA if "://" in out else ENDINGS.get(Path(out).suffix.lower()))
    if meant is None:
        raise BadInputError(
            f"--out {short(out)}: name a file that ends in {', '.join(ENDINGS)}, or a storage (sqlite:///FILE), or a "
            f"folder with --format {' or '.join(FOLDERS)}."
        )
    if "://" not in out:
        check_not_read(out, inputs)
    ending = next((ending for ending, named in ENDINGS.items() if named == meant), "")
    if "://" not in out and not out.lower().endswith(ending):
        raise BadInputError(f"--out {short(out)}: {meant} needs the name of a file that ends in {ending}; change one.")
    if meant in FOLDERS and Path(out).is_file():
        raise BadInputError(f"--out {short(out)}: is a file; {meant} needs a folder.")
    _check_extra(meant)
    if meant not in FOLDERS and "://" not in out:
        check_outputs(out, inputs=inputs)
    elif meant == OPTUNA and (file := _file_of(out)) is not None:
        if file in ("", ":memory:"):
            raise BadInputError(f"--out {short(out)}: names no file, so nothing would be kept; give sqlite:///FILE.")
        check_not_read(file, inputs)
    return meant


def _file_of(storage: str) -> str | None:
    """The file of an SQLite storage, whatever its driver and options; "" if it names none, None for a server."""
    from sqlalchemy.engine import make_url  # optuna depends on it
    from sqlalchemy.exc import ArgumentError

    try:
        url = make_url(storage)
    except ArgumentError:
        return None
    return (url.database or "") if url.get_backend_name() == "sqlite" else None


def _check_extra(format: str) -> None:
    if format == PARQUET:
        parquet()
    elif format == OPTUNA:
        optuna()
    elif format == TENSORBOARD:
        check_tensorboard()


def export(store: CampaignStore, spec: Spec | None, out: str, format: str) -> dict[str, Any]:
    """Write the campaign to `out`; return what was written. Raises BadInputError and PlacerError if that fails."""
    facts: dict[str, Any] = {"out": out, "format": format}
    if format == OPTUNA:
        return {**facts, "rows": write_studies(store, out)}
    if format == TENSORBOARD:
        report = report_content(store, spec, MARKDOWN).decode()
        return {**facts, "rows": write_scalars(store, Path(out), report)}
    if format == PERFETTO:
        cases = {} if spec is None else {cell.case.key: cell.case for cell in spec.cells}
        count, left_out = write_traces(store, cases, Path(out))
        if not count:
            why = next(iter(left_out.values()), "there is no case")
            raise PlacerError(f"{store.path}: no best mapping can be traced: {why}.")
        return {**facts, "traces": count, "left_out": left_out}
    return {**facts, "rows": write_table(store, Path(out), as_parquet=format == PARQUET)}
