"""A table of runs, from CSV or Parquet, whose columns are checked before a formula is fitted to them."""

from __future__ import annotations

import csv
import math
import random
import stat
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from placer.errors import BadInputError, first_twice, listed, short
from placer.files import LARGEST_FILE_BYTES

Floats = NDArray[np.float64]
Texts = tuple[str, ...]
Row = Sequence[Any]
FORMATS = (".csv", ".parquet")
MISSING = frozenset({"", "nan", "na", "n/a", "null", "none"})
MOST_ROWS = 2_000  # the most rows of a table that are kept, so that a fit takes seconds
BATCH_ROWS = 1 << 14  # rows of Parquet that are read at a time


@dataclass(frozen=True)
class Runs:
    """A table of runs. source: where the runs come from, for error messages. columns: each is float64 [rows], or [rows]
    texts. drawn_from: the number of rows in the table that the runs were drawn from; None if all were taken. places:
    the position of each run in that table.
    """

    source: str
    columns: Mapping[str, Floats | Texts]
    drawn_from: int | None = None
    places: tuple[int, ...] = ()

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    @classmethod
    def of(cls, cells: Mapping[str, Sequence[Any]], source: str = "the runs") -> Runs:
        """Make runs from cells as they were read, by column. Raises BadInputError if a column cannot be used."""
        columns = {name: _Column(source, name) for name in cells}
        for i, row in enumerate(zip(*cells.values(), strict=True), 1):
            for column, cell in zip(columns.values(), row, strict=True):
                column.look(cell, i)
        if not cells or not len(next(iter(cells.values()))):
            raise BadInputError(f"{source}: has no rows; give at least a few runs.")
        return cls(source, {name: columns[name].of(found) for name, found in cells.items()})

    def row(self, i: int) -> int:
        """Return the number of run `i` in its table, counted from 1."""
        return (self.places[i] if self.places else i) + 1

    def numbers(self, name: str) -> Floats:
        """Return a column of numbers. Raises BadInputError if the column holds text."""
        found = self.columns[name]
        if isinstance(found, tuple):
            raise BadInputError(
                f"{self.source}: column {short(name)} holds text ({short(found[0])} in row {self.row(0)}); numbers are "
                "needed here."
            )
        return found

    def is_text(self, name: str) -> bool:
        return isinstance(self.columns[name], tuple)

    def take(self, rows: NDArray[np.intp]) -> Runs:
        return Runs(self.source, {name: _taken(column, rows) for name, column in self.columns.items()})


def read_runs(path: str | Path, names: Sequence[str], most: int = MOST_ROWS, seed: int = 0) -> Runs:
    """Read the columns `names` of a .csv file (with a header) or a .parquet file. If there are more than `most` rows,
    `most` of them are drawn at random by `seed`. All rows are checked, but only the drawn ones are kept in memory.

    Raises BadInputError, of one line, for a missing file or column, for missing values, and for text in a column of
    numbers.
    """
    path = Path(path)
    if path.suffix.lower() not in FORMATS:
        raise BadInputError(f"{path}: a table of runs ends in {' or '.join(FORMATS)}; convert it, or rename it.")
    try:
        _check_file(path)
        with closing(_csv(path) if path.suffix.lower() == ".csv" else _parquet(path, names)) as rows:
            return _read(str(path), rows, list(dict.fromkeys(names)), most, random.Random(seed))
    except OSError as error:
        raise BadInputError(f"{path}: cannot be read ({error.strerror or error}); check the path.") from None


def _read(source: str, rows: Iterator[Row], names: Sequence[str], most: int, rng: random.Random) -> Runs:
    """Read the header and then all rows; keep at most `most` by reservoir sampling (Vitter 1985, algorithm R)."""
    header = next(rows)
    for name in names:
        if name not in header:
            raise BadInputError(f"{source}: has no column {short(name)}; it has {listed(list(header)) or 'none'}.")
    at = [header.index(name) for name in names]
    columns = [_Column(source, name) for name in names]
    kept: list[tuple[int, Row]] = []
    count = 0
    for row in rows:
        cells = [row[i] for i in at]
        for column, cell in zip(columns, cells, strict=True):
            column.look(cell, count + 1)
        place = count if count < most else int(rng.random() * (count + 1))
        if place < len(kept):
            kept[place] = count, cells
        elif place < most:
            kept.append((count, cells))
        count += 1
    if not kept:
        raise BadInputError(f"{source}: has no rows; give at least a few runs.")
    kept.sort(key=lambda entry: entry[0])
    found = {c.name: c.of([cells[i] for _, cells in kept]) for i, c in enumerate(columns)}
    return Runs(source, found) if count <= most else Runs(source, found, count, tuple(place for place, _ in kept))


def _check_file(path: Path) -> None:
    """Raise BadInputError for a file that is too large, and for anything other than a file, such as a pipe, because
    reading a pipe may wait forever. Raises OSError if the path does not exist.
    """
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        raise BadInputError(f"{path}: is no file; give the path of a table of runs.")
    if status.st_size > LARGEST_FILE_BYTES:
        most = LARGEST_FILE_BYTES >> 20
        raise BadInputError(
            f"{path}: has {status.st_size >> 20} MiB, and {most} MiB is the most that is read; thin it."
        )


def _csv(path: Path) -> Generator[Row, None, None]:
    """Yield the header, then each row."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            lines = csv.reader(file)
            header = [name.strip() for name in next(lines, [])]
            twice = first_twice(header)
            if twice is not None:
                raise BadInputError(f"{path}: two columns are called {short(twice)}; rename one.")
            yield header
            for i, row in enumerate(filter(None, lines), 1):
                if len(row) != len(header):
                    raise BadInputError(
                        f"{path}: row {i} has {len(row)} cells and the header {len(header)}; correct it."
                    )
                yield row
    except (UnicodeDecodeError, csv.Error) as error:
        raise BadInputError(f"{path}: is no CSV in UTF-8 ({error}); export it again.") from None


def _parquet(path: Path, names: Sequence[str]) -> Generator[Row, None, None]:
    """Yield the header, then each row, of the columns `names`. If one is missing, yield the whole header alone."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise BadInputError(
            f"{path}: Parquet needs pyarrow, which is not installed: pip install 'placer[parquet]', or give a .csv."
        ) from None
    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            header = file.schema_arrow.names
            twice = first_twice([name for name in header if name in names])
            if twice is not None:
                raise BadInputError(f"{path}: two columns are called {short(twice)}; rename one.")
            wanted = [name for name in dict.fromkeys(names) if name in header]
            if len(wanted) < len(set(names)):
                yield header
                return
            yield wanted
            for batch in file.iter_batches(BATCH_ROWS, columns=wanted):
                yield from zip(*(batch.column(name).to_pylist() for name in wanted), strict=True)
    except pyarrow.ArrowException as error:
        raise BadInputError(f"{path}: is no Parquet file ({str(error).splitlines()[0]}); check it.") from None


@dataclass
class _Column:
    """A check of one column, cell by cell: it must hold numbers only or text only, and no empty cell."""

    source: str
    name: str
    has_number: bool = False
    text: tuple[int, str] | None = None  # (row, cell) of the first cell that is no number
    infinite: int | None = None  # the first row with a number that is not finite

    @property
    def where(self) -> str:
        return f"{self.source}: column {short(self.name)}"

    def look(self, cell: Any, row: int) -> None:
        """Check a cell and note its kind. Raises BadInputError if the cell is empty."""
        number = _number(cell)
        if number is None:
            if _is_missing(cell):
                raise BadInputError(f"{self.where} has no value in row {row}; fill it in, or drop the row.")
            self.text = self.text or (row, str(cell))
        elif number - number != 0.0:  # infinite, or not a number
            if _is_missing(cell):
                raise BadInputError(f"{self.where} has no value in row {row}; fill it in, or drop the row.")
            self.has_number, self.infinite = True, self.infinite or row
        else:
            self.has_number = True

    def of(self, cells: Sequence[Any]) -> Floats | Texts:
        """Return `cells` of this column as numbers or texts.

        Raises BadInputError if the column mixes numbers with text or has a number that is not finite.
        """
        if self.text is None:
            if self.infinite is not None:
                raise BadInputError(f"{self.where} is not finite in row {self.infinite}; correct it.")
            return np.array([_number(cell) for cell in cells], dtype=np.float64)
        if self.has_number:
            row, text = self.text
            raise BadInputError(
                f"{self.where} holds numbers, but in row {row} the text {short(text)}; correct it, or drop the row."
            )
        return tuple(str(cell).strip() for cell in cells)


def _is_missing(cell: Any) -> bool:
    if isinstance(cell, str):
        return cell.strip().lower() in MISSING
    return cell is None or (isinstance(cell, float) and math.isnan(cell))


def _number(cell: Any) -> float | None:
    try:
        return number(cell) if isinstance(cell, str) else float(cell)
    except (TypeError, ValueError):
        return None


def number(text: str) -> float:
    """Parse a number in a table. Raises ValueError for other texts, also for `3_3`, which Python would accept."""
    if "_" in text:
        raise ValueError(f"{text!r} is no number")
    return float(text)


def _taken(column: Floats | Texts, rows: NDArray[np.intp]) -> Floats | Texts:
    return tuple(column[i] for i in rows) if isinstance(column, tuple) else column[rows]
