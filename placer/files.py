"""Reads JSON documents, which are validated, and writes files. All outputs that a user names are written here.

Bad input raises a one-line BadInputError that names the file, the path inside it and the fix.
"""

from __future__ import annotations

import codecs
import errno
import hashlib
import json
import os
import re
import select
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_hex
from typing import Annotated, Any, BinaryIO, Literal, NamedTuple, TypeVar

import msgspec

from placer.errors import BadInputError, PlacerError, first_twice, short

LARGEST_FILE_BYTES = 128 << 20  # a graph of some 400,000 ops
LONGEST_STEM_BYTES = 180  # of a file's name that Placer makes
PIPE_S = 60.0  # how long the reader of a pipe may take nothing
HALF = re.compile(rb"\\u[dD][89abAB][0-9a-fA-F]{2}")  # the first of two surrogates that make a character
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
    data = read_input(path, format)
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
        raise BadInputError(f"{path}: {_said(error)} (format {format}).") from None
    except (msgspec.DecodeError, json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadInputError(f"{path}: {_not_json(data, error)}") from None


class _TwinsError(ValueError):
    """A JSON object has this key twice."""


def _refuse_twins(pairs: list[tuple[str, Any]]) -> None:
    """Refuse duplicate keys: JSON does not define which value counts, and readers differ."""
    twice = first_twice([key for key, _ in pairs])
    if twice is not None:
        raise _TwinsError(twice)


def read_input(path: str | Path, format: str) -> bytes:
    """A file's content, without a byte order mark. Raises BadInputError, as `read_whole`, and if it is empty."""
    data = read_whole(path, format)
    if not data.strip():
        raise BadInputError(f"{path}: is empty; give the path of a {format} file.")
    return data.removeprefix(codecs.BOM_UTF8)


def read_whole(path: str | Path, format: str) -> bytes:
    """A file's content. format: what the file should be, for the error. Pipes are refused because reading one could
    block forever, and so are files that are too large. Raises BadInputError.
    """
    try:
        status = Path(path).stat()
        if not stat.S_ISREG(status.st_mode):
            raise BadInputError(f"{path}: is no file; give the path of a {format} file.")
        if status.st_size > LARGEST_FILE_BYTES:
            held, most = (f"{count / 2**20:,.0f} MiB" for count in (status.st_size, LARGEST_FILE_BYTES))
            raise BadInputError(f"{path}: has {held}, and {most} is the most that is read; is it a {format} file?")
        return Path(path).read_bytes()
    except (OSError, ValueError) as error:
        raise unread(path, error) from None


def shortened(stem: str) -> str:
    """A file's name that is short enough for every file system. A long `stem` is cut, and gets a digest as its end."""
    if len(stem.encode()) <= LONGEST_STEM_BYTES:
        return stem
    digest = hashlib.sha256(stem.encode()).hexdigest()[:8]
    return f"{stem.encode()[:LONGEST_STEM_BYTES].decode(errors='ignore')}-{digest}"


def unread(path: str | Path, error: OSError | ValueError) -> BadInputError:
    """The error for a path that cannot be read. error: a ValueError stands for a name with a null byte."""
    if isinstance(error, OSError):
        return BadInputError(f"{path}: cannot be read ({error.strerror}); check the path.")
    return BadInputError(f"{short(str(path))} is the path of no file, because it has a null byte; check it.")


def write_document(path: str | Path, document: Document) -> None:
    """Write `document` as JSON with `write_whole`. Raises PlacerError if that fails."""
    write_whole(path, msgspec.json.format(msgspec.json.encode(document), indent=1) + b"\n")


def write_whole(path: str | Path, content: bytes) -> None:
    """Write `content` to `path`. Symbolic links are followed.

    A regular file is replaced as a whole, and keeps its permissions; a character device or a pipe is written into.
    Raises PlacerError if that fails, and BadInputError for a folder, a socket or a block device.
    """
    found = _found(path)
    try:
        if found.is_special:
            _write_into(path, content)
            return
        target = Path(path).resolve()
        with _beside(target, found.mode) as (part, file):
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
            part.replace(target)
    except OSError as error:
        kept = "" if found.is_special else "; nothing was changed there"
        raise PlacerError(f"{path}: cannot be written ({error.strerror}){kept}.") from None


def check_outputs(*paths: str | Path | None, inputs: Iterable[str | Path | None] = ()) -> None:
    """Check, before long work, that its outputs `paths` can be written. A pipe need not have a reader yet.

    inputs: the files that the work reads, or keeps its measurements in. Raises BadInputError if an output cannot be
    written, if two outputs are the same file, or if an output is an input.
    """
    files, read = set(), list(inputs)
    for path in paths:
        if path is None:
            continue
        check_name(path)
        found = _found(path)
        if not found.is_special:
            check_not_read(path, read)
        if not found.is_special and Path(path).resolve() in files:
            raise BadInputError(f"{path}: two outputs would be written there; name another file for one of them.")
        files.add(Path(path).resolve())
        try:
            if found.is_special and not os.access(path, os.W_OK):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
            if not found.is_special:
                with _beside(Path(path).resolve(), found.mode):
                    pass
        except OSError as error:
            raise BadInputError(f"{path}: cannot be written ({error.strerror}); name another file.") from None


def check_name(path: str | Path) -> None:
    """Raises BadInputError if a path is no text in UTF-8, because no report and no JSON could name it."""
    try:
        str(path).encode()
    except UnicodeEncodeError:
        what = f"{short(str(path))} is no text in UTF-8, and could stand in no report"
        raise BadInputError(f"{what}; rename it.") from None


def check_not_read(path: str | Path, inputs: Iterable[str | Path | None]) -> None:
    """Raises BadInputError if the output `path` is one of the inputs, even under another name."""
    if os.path.realpath(path) in {os.path.realpath(read) for read in inputs if read is not None}:
        raise BadInputError(f"{path}: is read by this command, and would be replaced; name another file to write.")


class _Found(NamedTuple):
    """What exists at the path of an output. mode: the permissions of a regular file; None if there is none."""

    is_special: bool = False  # a character device or a pipe
    mode: int | None = None


def _found(path: str | Path) -> _Found:
    """Look up what exists at the path of an output; symbolic links are followed. Raises BadInputError if it cannot be
    written to.
    """
    try:
        mode = Path(path).stat().st_mode
    except FileNotFoundError:
        return _Found()
    except OSError as error:
        raise BadInputError(f"{path}: cannot be written ({error.strerror}); name another file.") from None
    if stat.S_ISREG(mode):
        return _Found(mode=stat.S_IMODE(mode) & 0o777)
    if stat.S_ISCHR(mode) or stat.S_ISFIFO(mode):
        return _Found(is_special=True)
    what = "a folder" if stat.S_ISDIR(mode) else "a socket" if stat.S_ISSOCK(mode) else "a block device"
    raise BadInputError(f"{path}: is {what}, and is not written to; name a file.")


@contextmanager
def _beside(target: Path, mode: int | None) -> Iterator[tuple[Path, BinaryIO]]:
    """Within the block, a new file in the folder of `target`; it is removed at the end if it still exists.

    mode: the file's permissions, with the owner of `target`; None = permissions and owner of any new file.
    """
    part = target.with_name(f".{token_hex(8)}.part")  # a name that no other user could have guessed
    fd = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666 if mode is None else mode)
    try:
        with os.fdopen(fd, "wb") as file:
            if mode is not None:
                with suppress(OSError):  # not every user may give files away, and some file systems have no owners
                    owner = target.stat()
                    os.fchown(fd, owner.st_uid, owner.st_gid)
                with suppress(PermissionError):
                    os.fchmod(fd, mode)
            yield part, file
    finally:
        part.unlink(missing_ok=True)


def _write_into(path: str | Path, content: bytes) -> None:
    """Write into a character device or a pipe. This takes as long as the reader takes, but never waits forever.

    Raises OSError, and PlacerError if there is no reader, or if it takes nothing for PIPE_S seconds.
    """
    try:
        fd = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError as error:
        if error.errno == errno.ENXIO:
            raise PlacerError(f"{path}: nobody reads from it; start its reader first.") from None
        raise
    left = memoryview(content)
    try:
        ready = select.poll()
        ready.register(fd, select.POLLOUT)
        while left:
            if not ready.poll(PIPE_S * 1000):
                raise PlacerError(f"{path}: its reader took nothing for {PIPE_S:g} s, so that it has only a part.")
            with suppress(BlockingIOError):
                left = left[os.write(fd, left) :]
    finally:
        os.close(fd)


def _not_json(data: bytes, error: Exception) -> str:
    """What is wrong with `data`, which could not be decoded, and what to do."""
    if isinstance(error, RecursionError):
        return "is nested too deeply for any file of this format; check where it comes from."
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "is in UTF-16 or UTF-32; save it as UTF-8."
    try:
        data.decode()
    except UnicodeDecodeError as found:
        return f"is not in UTF-8 (byte {found.start}); save it as UTF-8."
    found_at = re.search(r"\(byte (\d+)\)", str(error))
    at = int(found_at[1]) if found_at else 0
    if "surrogate" in str(error) or HALF.search(data, max(at - 6, 0), at):
        return f"has half a character, a lone surrogate ({error}); write the whole pair, or leave it out."
    near = data[max(at - 1, 0) : at + len(b"Infinity")]
    if b"NaN" in near or b"Infinity" in near:
        return f"has NaN or Infinity ({error}), which JSON does not know; write a number."
    return f"is no JSON ({error}); correct it there."


class Complaint(NamedTuple):
    """The parts of a validation error of msgspec."""

    kind: Literal["unknown field", "missing field", "invalid choice", "other"]
    what: str  # the field, or the value that is not allowed; of "other", the whole message, with a small first letter
    where: str  # the path, such as "$.ops[1]"; empty if msgspec names none


def complaint(error: msgspec.ValidationError) -> Complaint:
    """Take a validation error apart, so that each reader of documents can word its own message."""
    text = str(error)
    what, _, at = text.rpartition(" - at ") if " - at " in text else (text, "", "")
    where = at.replace("`", "")
    if field := re.search(r"unknown field `(.*)`", what, re.DOTALL):
        return Complaint("unknown field", field[1], where)
    if field := re.search(r"missing required field `(.*)`", what):
        return Complaint("missing field", field[1], where)
    if value := re.search(r"[Ii]nvalid enum value '(.*)'", what, re.DOTALL):
        return Complaint("invalid choice", value[1], where)
    return Complaint("other", f"{what[:1].lower()}{what[1:].replace('`', '')}", where)


def _said(error: msgspec.ValidationError) -> str:
    """What is wrong with a JSON file, as path, problem and fix."""
    kind, what, where = complaint(error)
    if kind == "unknown field":
        return f"{where or '$'} has the unknown field {short(what)}; remove it"
    if kind == "missing field":
        return f"{where or '$'} lacks the field {what!r}; add it"
    if kind == "invalid choice":
        return f"{where or '$'}: {short(what)} is none of the values it may have; correct it"
    return f"{where or ('$.edges' if 'length' in what else '$')}: {what}; correct it"


def parquet() -> Any:
    """Import pyarrow.parquet. Raises BadInputError if the extra is not installed."""
    try:
        import pyarrow.parquet
    except ImportError as error:
        raise BadInputError(
            "Parquet needs pyarrow, which is not installed: pip install 'placer[parquet]', or export to .csv."
        ) from error
    return pyarrow.parquet
