"""JSON documents and files: validated when read, replaced atomically when written.

Bad input raises a one-line BadInputError that names the file, the path inside it and the fix.
"""

from __future__ import annotations

import json
import os
import re
import stat
from pathlib import Path
from secrets import token_hex
from typing import Annotated, Any, TypeVar

import msgspec

from placer.errors import BadInputError, PlacerError, short

LARGEST_FILE_BYTES = 128 << 20  # a graph of some 400,000 ops
# Names are echoed in tables and error lines.
Name = Annotated[str, msgspec.Meta(max_length=1000)]


class Document(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A JSON object; unknown fields are refused."""


class _Header(msgspec.Struct):
    """The field that tells one kind of file from another."""

    format: str


D = TypeVar("D", bound=Document)


def read_document(path: str | Path, kind: type[D], format: str, newer: str | None = None) -> D:
    """Read the JSON file at `path`, which must have this `format`, or the `newer` one, and the fields of `kind`.

    Raises BadInputError.
    """
    data = _read(path, format)
    try:
        found = msgspec.json.decode(data, type=_Header).format
        if found not in (format, newer):
            raise BadInputError(f"{path}: $.format is {short(found)}; this needs a {format!r} file.")
        document = msgspec.json.decode(data, type=kind)
        json.loads(data, object_pairs_hook=_refuse_twins)
        return document
    except _TwinsError as error:
        raise BadInputError(f"{path}: an object has the key {short(str(error))} twice; keep one of them.") from None
    except msgspec.ValidationError as error:
        raise BadInputError(f"{path}: {_said(str(error))} (format {format}).") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadInputError(f"{path}: not JSON ({error}); NaN and Infinity are not JSON either.") from None


class _TwinsError(ValueError):
    """A JSON object has this key twice."""


def _refuse_twins(pairs: list[tuple[str, Any]]) -> None:
    """Refuse duplicate keys: JSON does not define which value counts, and readers differ."""
    if len({key for key, _ in pairs}) != len(pairs):
        seen: set[str] = set()
        raise _TwinsError(next(key for key, _ in pairs if key in seen or seen.add(key)))  # type: ignore[func-returns-value]


def _read(path: str | Path, format: str) -> bytes:
    """The file's content. Pipes are refused because reading one could block forever."""
    try:
        status = Path(path).stat()
        if not stat.S_ISREG(status.st_mode):
            raise BadInputError(f"{path}: is no file; give the path of a {format} file.")
        if status.st_size > LARGEST_FILE_BYTES:
            held, most = (f"{count / 2**20:,.0f} MiB" for count in (status.st_size, LARGEST_FILE_BYTES))
            raise BadInputError(f"{path}: has {held}, and {most} is the most that is read; is it a {format} file?")
        data = Path(path).read_bytes()
    except OSError as error:
        raise BadInputError(f"{path}: cannot be read ({error.strerror}); check the path.") from None
    if not data.strip():
        raise BadInputError(f"{path}: is empty; give the path of a {format} file.")
    return data


def write_document(path: str | Path, document: Document) -> None:
    """Write `document` as JSON, atomically. Raises PlacerError where that fails."""
    write_whole(path, msgspec.json.format(msgspec.json.encode(document), indent=1) + b"\n")


def write_whole(path: str | Path, content: bytes) -> None:
    """Write `content` to a temporary file and rename it to `path`. Raises PlacerError where that fails."""
    target = Path(path)
    part = target.with_name(f".{target.name}.{token_hex(8)}.part")  # none that another user could have put there
    try:
        try:
            with part.open("xb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            part.replace(target)
        finally:
            part.unlink(missing_ok=True)
    except OSError as error:
        raise PlacerError(f"{path}: cannot be written ({error.strerror}); nothing was changed there.") from None


def _said(complaint: str) -> str:
    """msgspec's complaint as path, problem and fix."""
    what, _, where = complaint.rpartition(" - at ") if " - at " in complaint else (complaint, "", "")
    path = where.replace("`", "") or ("$.edges" if "length" in what else "$")
    if field := re.search(r"unknown field `(.*)`", what, re.DOTALL):
        return f"{path} has the unknown field {short(field[1])}; remove it"
    if field := re.search(r"missing required field `(.*)`", what):
        return f"{path} lacks the field {field[1]!r}; add it"
    if value := re.search(r"[Ii]nvalid enum value '(.*)'", what, re.DOTALL):
        return f"{path}: {short(value[1])} is none of the values it may have; correct it"
    return f"{path}: {what[:1].lower()}{what[1:].replace('`', '')}; correct it"


def parquet() -> Any:
    """pyarrow.parquet. Raises BadInputError where the extra is not installed."""
    try:
        import pyarrow.parquet
    except ImportError as error:
        raise BadInputError(
            "Parquet needs pyarrow, which is not installed: pip install 'placer[parquet]', or export to .csv."
        ) from error
    return pyarrow.parquet
