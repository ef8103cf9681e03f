"""The measurements of a campaign as a table, one row each: CSV, or Parquet with the extra `parquet`."""

from __future__ import annotations

import csv
from io import BytesIO, StringIO
from pathlib import Path
from typing import Any

from experiments.campaign.store import CampaignStore, Held, StoredTrial
from placer.files import parquet, write_whole
from placer.result import Measured

COLUMNS = (
    *("case", "kind", "searcher", "seed", "n", "step_s", "spread_s", "repeats", "stopped_early", "failed", "detail"),
    *("seconds", "placement", "refused"),
)


def export(store: CampaignStore, path: Path, *, as_parquet: bool = False) -> int:
    """Write all measurements and return their number. Raises PlacerError if the file cannot be written, and
    BadInputError if Parquet is not installed.
    """
    rows = [_row(held, trial) for held in store.held() for trial in held.trials]
    write_whole(path, _parquet(rows) if as_parquet else _csv(rows))
    return len(rows)


def _row(held: Held, trial: StoredTrial) -> dict[str, Any]:
    ran = trial.result if isinstance(trial.result, Measured) else None
    failed = None if isinstance(trial.result, Measured) else trial.result
    return {
        "case": held.case_key,
        "kind": held.kind,
        "searcher": held.searcher,
        "seed": held.seed,
        "n": trial.n,
        "step_s": ran and ran.step_s,
        "spread_s": ran and ran.spread_s,
        "repeats": ran and ran.repeats,
        "stopped_early": ran and ran.stopped_early,
        "failed": failed and failed.reason,
        "detail": failed and failed.detail,
        "seconds": trial.seconds,
        "placement": " ".join(map(str, trial.placement)),
        "refused": trial.refused,
    }


def _csv(rows: list[dict[str, Any]]) -> bytes:
    text = StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().encode()


def _parquet(rows: list[dict[str, Any]]) -> bytes:
    import pyarrow

    kinds = dict.fromkeys(("seed", "n", "repeats"), pyarrow.int64())
    kinds |= dict.fromkeys(("step_s", "spread_s", "seconds"), pyarrow.float64())
    kinds |= dict.fromkeys(("stopped_early", "refused"), pyarrow.bool_())
    schema = pyarrow.schema([(name, kinds.get(name, pyarrow.string())) for name in COLUMNS])
    content = BytesIO()
    parquet().write_table(pyarrow.Table.from_pylist(rows, schema=schema), content)
    return content.getvalue()
