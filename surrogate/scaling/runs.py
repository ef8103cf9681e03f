"""A table of runs, from CSV or Parquet, whose columns are checked before anything is fitted to them."""

from __future__ import annotations

import csv
import math
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from placer.errors import BadInputError, listed, short
from placer.files import LARGEST_FILE_BYTES

Floats = NDArray[np.float64]
Texts = tuple[str, ...]
FORMATS = (".csv", ".parquet")
MISSING = frozenset({"", "nan", "na", "n/a", "null", "none"})


@dataclass(frozen=True)
class Runs:
    """source: where they come from, for error lines. columns: float64 [rows] of numbers, or the texts of [rows]."""

    source: str
    columns: Mapping[str, Floats | Texts]

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    @classmethod
    def of(cls, cells: Mapping[str, Sequence[Any]], source: str = "the runs") -> Runs:
        """From cells as they were read, by column. Raises BadInputError where a column cannot be used."""
        if not cells or not len(next(iter(cells.values()))):
            raise BadInputError(f"{source}: has no rows; give at least a few runs.")
        return cls(source, {name: _column(source, name, found) for name, found in cells.items()})

    def numbers(self, name: str) -> Floats:
        """A column of numbers. Raises BadInputError where it has text."""
        found = self.columns[name]
        if isinstance(found, tuple):
            raise BadInputError(
                f"{self.source}: column {short(name)} holds text ({short(found[0])} in row 1); numbers are needed here."
            )
        return found

    def is_text(self, name: str) -> bool:
        return isinstance(self.columns[name], tuple)

    def take(self, rows: NDArray[np.intp]) -> Runs:
        return Runs(self.source, {name: _taken(column, rows) for name, column in self.columns.items()})


def read_runs(path: str | Path, names: Sequence[str]) -> Runs:
    """The columns `names` of a .csv file (with a header) or a .parquet file. Raises BadInputError, of one line, for
    a file or column that is not there, for missing values, and for text in a column of numbers.
    """
    path = Path(path)
    if path.suffix.lower() not in FORMATS:
        raise BadInputError(f"{path}: a table of runs ends in {' or '.join(FORMATS)}; convert it, or rename it.")
    try:
        _check_file(path)
        cells = _csv(path) if path.suffix.lower() == ".csv" else _parquet(path)
    except OSError as error:
        raise BadInputError(f"{path}: cannot be read ({error.strerror or error}); check the path.") from None
    for name in names:
        if name not in cells:
            raise BadInputError(f"{path}: has no column {short(name)}; it has {listed(list(cells)) or 'none'}.")
    return Runs.of({name: cells[name] for name in names}, str(path))


def _check_file(path: Path) -> None:
    """A pipe is refused, because nobody may ever write into it. Raises OSError where there is nothing at all."""
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        raise BadInputError(f"{path}: is no file; give the path of a table of runs.")
    if status.st_size > LARGEST_FILE_BYTES:
        most = LARGEST_FILE_BYTES >> 20
        raise BadInputError(
            f"{path}: has {status.st_size >> 20} MiB, and {most} MiB is the most that is read; thin it."
        )


def _csv(path: Path) -> dict[str, list[str]]:
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            header, *rows = list(csv.reader(file)) or [[]]
    except (UnicodeDecodeError, csv.Error) as error:
        raise BadInputError(f"{path}: is no CSV in UTF-8 ({error}); export it again.") from None
    header = [name.strip() for name in header]
    if len(set(header)) != len(header):
        twice = next(name for name in header if header.count(name) > 1)
        raise BadInputError(f"{path}: two columns are called {short(twice)}; rename one.")
    rows = [row for row in rows if row]
    for i, row in enumerate(rows, 1):
        if len(row) != len(header):
            raise BadInputError(f"{path}: row {i} has {len(row)} cells and the header {len(header)}; correct it.")
    return {name: [row[i] for row in rows] for i, name in enumerate(header)}


def _parquet(path: Path) -> dict[str, list[Any]]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise BadInputError(
            f"{path}: Parquet needs pyarrow, which is not installed: pip install 'placer[parquet]', or give a .csv."
        ) from None
    try:
        return dict(pyarrow.parquet.read_table(path).to_pydict())
    except pyarrow.ArrowException as error:
        raise BadInputError(f"{path}: is no Parquet file ({str(error).splitlines()[0]}); check it.") from None


def _column(source: str, name: str, cells: Sequence[Any]) -> Floats | Texts:
    where = f"{source}: column {short(name)}"
    for i, cell in enumerate(cells, 1):
        if _is_missing(cell):
            raise BadInputError(f"{where} has no value in row {i}; fill it in, or drop the row.")
    found = [_number(cell) for cell in cells]
    if None not in found:
        numbers = np.array(found, dtype=np.float64)
        if not np.isfinite(numbers).all():
            raise BadInputError(
                f"{where} is not finite in row {int((~np.isfinite(numbers)).argmax()) + 1}; correct it."
            )
        return numbers
    if any(number is not None for number in found):
        row = found.index(None)
        raise BadInputError(
            f"{where} holds numbers, but in row {row + 1} the text {short(str(cells[row]))}; "
            "correct it, or drop the row."
        )
    return tuple(str(cell).strip() for cell in cells)


def _is_missing(cell: Any) -> bool:
    if isinstance(cell, str):
        return cell.strip().lower() in MISSING
    return cell is None or (isinstance(cell, float) and math.isnan(cell))


def _number(cell: Any) -> float | None:
    try:
        return float(cell)
    except (TypeError, ValueError):
        return None


def _taken(column: Floats | Texts, rows: NDArray[np.intp]) -> Floats | Texts:
    return tuple(column[i] for i in rows) if isinstance(column, tuple) else column[rows]
