"""The operator dataset: what decides an op's time, how long it took, and export to CSV and Parquet."""

from __future__ import annotations

import csv
import hashlib
import json
from collections.abc import Iterable, Sequence
from collections.abc import Mapping as MappingABC
from dataclasses import dataclass
from io import BytesIO, StringIO
from math import inf, prod
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import msgspec

from placer.errors import BadInputError, one_line
from placer.files import parquet, write_whole

YARDSTICKS = "placer:yardsticks"  # the network of rows that say how fast a device is
Shape = tuple[int | None, ...] | None
ITEM_BYTES = {
    "float64": 8, "float32": 4, "bfloat16": 2, "float16": 2, "half": 2, "complex64": 8, "complex128": 16,
    "int64": 8, "uint64": 8, "int32": 4, "uint32": 4, "int16": 2, "uint16": 2, "int8": 1, "uint8": 1, "bool": 1,
}  # fmt: skip


class Tensor(NamedTuple):
    """Shape and dtype of one input or output; None for a rank or dimension unknown before the step runs."""

    shape: Shape
    dtype: str

    @property
    def elements(self) -> int:
        """Number of elements; an unknown dimension counts as 1, an unknown rank as 0."""
        return 0 if self.shape is None else prod(1 if dim is None else dim for dim in self.shape)

    @property
    def tensor_bytes(self) -> int:
        """Bytes of the tensor; strings and handles count as 0."""
        return self.elements * ITEM_BYTES.get(self.dtype, 0)


@dataclass(frozen=True, slots=True)
class Operator:
    """All that decides an op's time on a device: two ops with equal operators do the same work."""

    type: str
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    attributes: MappingABC[str, Any]
    """Plain values that change the work (strides, padding, fused ops, ...), and the values of small integer constants
    (axes, paddings, sizes) as `input1`, `input2`, ..."""
    flops: float | None = None  # a multiply-add counts two; None if unknown

    @property
    def dtype(self) -> str:
        """The dtype of the first floating-point tensor, else of the first tensor; outputs come first."""
        dtypes = [t.dtype for t in (*self.outputs, *self.inputs)]
        return next((d for d in dtypes if "float" in d or d == "half"), dtypes[0] if dtypes else "")

    @property
    def bytes_in(self) -> int:
        return sum(t.tensor_bytes for t in self.inputs)

    @property
    def bytes_out(self) -> int:
        return sum(t.tensor_bytes for t in self.outputs)

    @property
    def signature(self) -> str:
        """Sixteen hex digits over type, shapes, dtypes and attributes."""
        text = json.dumps([self.type, self.inputs, self.outputs, dict(self.attributes)], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class OperatorRow:
    """The measured times of one operator on one device."""

    operator: Operator
    device: str
    device_kind: str
    machine: str
    batch: int | None  # examples per step of the network; None if unknown
    network: str
    phase: str | None  # forward, backward or update
    source: str  # "step" = inside traced training steps, "single" = by itself on fresh inputs
    median_s: float
    low_s: float  # lower quartile
    spread_s: float  # interquartile range
    repeats: int  # number of times behind the three figures


COLUMNS = (
    "op_type", "input_shapes", "input_dtypes", "output_shapes", "output_dtypes", "dtype", "attributes", "flops",
    "bytes_in", "bytes_out", "device", "device_kind", "machine", "batch", "network", "phase", "source", "median_s",
    "low_s", "spread_s", "repeats", "signature",
)  # fmt: skip
Count = Annotated[int, msgspec.Meta(ge=0)]
Shapes = list[tuple[Count | None, ...] | None]
LISTS: dict[str, Any] = {
    "input_shapes": Shapes, "input_dtypes": list[str], "output_shapes": Shapes, "output_dtypes": list[str],
    "attributes": dict[str, Any],
}  # fmt: skip
INVALID = (ValueError, TypeError, LookupError, OverflowError, RecursionError)  # errors that an invalid record may raise


def to_record(row: OperatorRow) -> dict[str, Any]:
    """The row as one flat record of COLUMNS; shapes, dtypes and attributes are JSON text."""
    op = row.operator
    return {
        "op_type": op.type,
        "input_shapes": json.dumps([t.shape for t in op.inputs]),
        "input_dtypes": json.dumps([t.dtype for t in op.inputs]),
        "output_shapes": json.dumps([t.shape for t in op.outputs]),
        "output_dtypes": json.dumps([t.dtype for t in op.outputs]),
        "dtype": op.dtype,
        "attributes": json.dumps(dict(op.attributes), sort_keys=True),
        "flops": op.flops,
        "bytes_in": op.bytes_in,
        "bytes_out": op.bytes_out,
        "signature": op.signature,
        **{name: getattr(row, name) for name in COLUMNS[10:-1]},
    }


def from_record(record: MappingABC[str, Any]) -> OperatorRow:
    """The row of a flat record. Raises one of INVALID for an invalid record."""
    parsed = {name: msgspec.convert(json.loads(record[name]), kind) for name, kind in LISTS.items()}
    operator = Operator(
        str(record["op_type"]),
        _tensors(parsed["input_shapes"], parsed["input_dtypes"]),
        _tensors(parsed["output_shapes"], parsed["output_dtypes"]),
        parsed["attributes"],
        _number(record["flops"]),
    )
    batch = _number(record["batch"])
    row = OperatorRow(
        operator=operator,
        device=str(record["device"]),
        device_kind=str(record["device_kind"]),
        machine=str(record["machine"]),
        batch=int(batch) if batch else None,
        network=str(record["network"]),
        phase=record["phase"] or None,
        source=str(record["source"]),
        median_s=float(record["median_s"]),
        low_s=float(record["low_s"]),
        spread_s=float(record["spread_s"]),
        repeats=int(record["repeats"]),
    )
    if row.repeats < 1 or not all(0 <= seconds < inf for seconds in (row.median_s, row.low_s, row.spread_s)):
        raise ValueError(f"{row.repeats} times of {row.median_s} s")
    return row


def _tensors(shapes: Sequence[Any], dtypes: Sequence[str]) -> tuple[Tensor, ...]:
    return tuple(Tensor(None if s is None else tuple(s), d) for s, d in zip(shapes, dtypes, strict=True))


def _number(value: Any) -> float | None:
    """A number; None if empty, because CSV writes None as an empty text."""
    return None if value is None or value == "" else float(value)


def check_export(path: Path) -> None:
    """Check before profiling that `path` can be written after it. Raises BadInputError."""
    if path.suffix not in (".csv", ".parquet"):
        raise BadInputError(f"--export {path}: no format of that name is known; name a .csv or .parquet file.")
    if not path.parent.is_dir():
        raise BadInputError(f"--export {path}: there is no folder {path.parent}; make it first.")
    if path.suffix == ".parquet":
        parquet()


def export(rows: Iterable[OperatorRow], path: Path) -> None:
    """Write the rows as CSV or Parquet, chosen by the file's suffix.

    Raises BadInputError for another suffix and if Parquet is not installed, PlacerError if writing fails.
    """
    check_export(path)
    records = [to_record(row) for row in rows]
    write_whole(path, _csv(records) if path.suffix == ".csv" else _parquet(records))


def load(path: Path) -> list[OperatorRow]:
    """Read a file that `export` wrote. Raises BadInputError for other files."""
    check_export(path)
    try:
        if path.suffix == ".csv":
            with path.open(newline="", encoding="utf-8") as file:
                return [from_record(record) for record in csv.DictReader(file)]
        return [from_record(record) for record in parquet().read_table(path).to_pylist()]
    except (OSError, *INVALID) as error:
        raise BadInputError(
            f"{path}: is no operator dataset ({one_line(str(error))[:200]}); export one with placer profile."
        ) from error


def _csv(records: Sequence[MappingABC[str, Any]]) -> bytes:
    text = StringIO(newline="")
    writer = csv.DictWriter(text, COLUMNS)
    writer.writeheader()
    writer.writerows(records)
    return text.getvalue().encode()


def _parquet(records: Sequence[MappingABC[str, Any]]) -> bytes:
    import pyarrow

    kinds = {"flops": pyarrow.float64(), "bytes_in": pyarrow.int64(), "bytes_out": pyarrow.int64()}
    kinds |= {"batch": pyarrow.int64(), "repeats": pyarrow.int64()}
    kinds |= dict.fromkeys(("median_s", "low_s", "spread_s"), pyarrow.float64())
    schema = pyarrow.schema([(name, kinds.get(name, pyarrow.string())) for name in COLUMNS])
    content = BytesIO()
    parquet().write_table(pyarrow.Table.from_pylist(list(records), schema=schema), content)
    return content.getvalue()
