"""The allowed values in the columns of a campaign's store. They are checked when they are read, because a file may be
damaged and other programs can write to it.
"""

from __future__ import annotations

import hashlib
import json
from typing import Annotated, Any, Literal, TypeVar, cast

import msgspec

from experiments.campaign.cells import MEASURED, PREDICTED
from placer.result import Failed, Measured, Reason, Result
from search.session.refusals import AS_SIMULATED

SEAL = b"\xc1"  # first byte, with which no MessagePack begins; a digest of the content and the content follow
DIGEST_BYTES = 16
# Errors that reading a value may raise if Placer did not write it.
ERRORS = (ValueError, TypeError, LookupError, OverflowError, RecursionError)

Moment = Annotated[float, msgspec.Meta(ge=0, le=2.5e11)]  # seconds since 1970, until the year 9892
Seconds = Annotated[float, msgspec.Meta(ge=0, le=1e12)]
Number = Annotated[int, msgspec.Meta(ge=0, lt=2**31)]
T = TypeVar("T")


class MeasuredFields(msgspec.Struct, forbid_unknown_fields=True):
    """A result that is a step time; the fields of `Measured`."""

    step_s: Seconds
    spread_s: Seconds = 0.0
    repeats: Annotated[int, msgspec.Meta(ge=1, lt=2**31)] = 1
    switch_s: Seconds = 0.0
    stopped_early: bool = False


class FailedFields(msgspec.Struct, forbid_unknown_fields=True):
    """A result that is a failure. refused: whether it was known before measuring, see `StoredTrial`."""

    failed: str
    detail: str = ""
    device: str = ""
    wanted_bytes: Annotated[float, msgspec.Meta(ge=0, le=1e18)] = 0.0
    refused: bool = False


class HeldRow(msgspec.Struct, array_like=True):
    """A cell, with the kind of its case."""

    key: str
    case_key: str
    kind: Literal["predicted", "measured"]
    searcher: str
    seed: int
    wanted: Number | None
    minutes: Seconds | None
    state: Any
    ended: str | None
    final: str | None


class SearchedRow(msgspec.Struct):
    """The fields of a searcher's state that are checked."""

    notes: list[str] = msgspec.field(default_factory=list)


class StateRow(msgspec.Struct):
    """The fields of the state of a search that are checked."""

    session: SearchedRow = msgspec.field(default_factory=SearchedRow)


class FailureRow(msgspec.Struct, array_like=True):
    """A failure of a measurement or of a case."""

    case: str
    cell: str | None
    n: Number | None
    reason: str
    detail: str
    at: Moment


class FinalRow(msgspec.Struct):
    """The checked fields of a cell's final: its best mapping beside the best single device."""

    best_s: Seconds
    best_single_s: Seconds | None
    n: Number
    untouched_s: Seconds | None = None
    spread_s: Seconds | None = None
    repeats: Number | None = None
    devices: list[Number] = msgspec.field(default_factory=list)


class CarriedRow(msgspec.Struct):
    """A placement that was carried over from another campaign."""

    placement: list[Number]
    store: str
    case: str
    step_s: Seconds
    predicted_s: Seconds


class SourceRow(msgspec.Struct):
    """A case from which placements might have been carried over."""

    store: str
    case: str
    likeness: float
    mappings: Number


class WarmRow(msgspec.Struct):
    """A warm start."""

    carried: list[CarriedRow]
    cases: list[SourceRow]
    start_s: Seconds | None = None


class OpenedRow(msgspec.Struct):
    """The checked fields of the facts found out about a case."""

    devices: list[str] = msgspec.field(default_factory=list)
    singles: list[tuple[str, Seconds | None]] = msgspec.field(default_factory=list)
    told: list[tuple[list[Number], dict[str, Any]]] | None = None
    untouched_s: Seconds | None = None
    bound_s: Seconds | None = None
    calibration: dict[str, Any] | None = None
    ops: Number | None = None
    groups: Number | None = None
    warm_start: WarmRow | None = None


assert (PREDICTED, MEASURED) == ("predicted", "measured")  # the literals in HeldRow


def lead(best_s: float, single_s: float | None) -> tuple[bool, float]:
    """How far a mapping is ahead of the best single device, for comparing cells: the larger the better. Mappings that
    ran without a single device come after all others, and are compared by their seconds.
    """
    return (False, -best_s) if single_s is None else (True, single_s / best_s)


def checked(text: Any, kind: type) -> dict[str, Any]:
    """The JSON object in `text`, whose fields must fit `kind`; more fields are allowed. Raises ERRORS."""
    found = json.loads(text)
    msgspec.convert(found, kind)
    return dict(found)


def typed(values: Any, kind: type[T]) -> T:
    """`values` converted to `kind`. Raises ERRORS."""
    return msgspec.convert(values, kind)


def trial_text(result: Result, refused: bool) -> str:
    """The result of a trial as JSON text. refused: as in `StoredTrial`."""
    return json.dumps(to_plain(result) | ({"refused": True} if refused else {}))


def trial_of(text: Any) -> tuple[Result, bool]:
    """The result of a trial in `trial_text`'s text, and whether it was refused. Raises ERRORS."""
    data = json.loads(text)
    result = from_plain(data)
    return result, isinstance(result, Failed) and bool(data.get("refused", _says_refused(result)))


def _says_refused(failed: Failed) -> bool:
    """Whether a failure is a refusal by its words, which is all that an older Placer stored."""
    return failed.reason == "memory" and failed.detail.endswith(AS_SIMULATED)


def to_plain(result: Result) -> dict[str, Any]:
    """A result as plain data."""
    if isinstance(result, Failed):
        ran_out = {"device": result.device, "wanted_bytes": result.wanted_bytes} if result.device else {}
        return {"failed": result.reason, "detail": result.detail, **ran_out}
    return {
        "step_s": result.step_s,
        "spread_s": result.spread_s,
        "repeats": result.repeats,
        "switch_s": result.switch_s,
        "stopped_early": result.stopped_early,
    }


def from_plain(data: dict[str, Any]) -> Result:
    """The result in `to_plain`'s data. Raises ERRORS for other data."""
    if "failed" in data:
        failed = msgspec.convert(data, FailedFields)
        reason = cast(Reason, failed.failed)  # a store of another version may have other reasons
        return Failed(reason, failed.detail, failed.device, failed.wanted_bytes)
    ran = msgspec.convert(data, MeasuredFields)
    return Measured(ran.step_s, ran.spread_s, ran.repeats, ran.switch_s, ran.stopped_early)


def placement_of(text: Any) -> tuple[int, ...]:
    """The device of each unit, from JSON text. Raises ERRORS."""
    return tuple(msgspec.convert(json.loads(text), list[Number]))


def sealed(state: dict[str, Any]) -> bytes:
    """A search's state as stored, with a digest: compiled code works on the state, so a damaged one must be refused."""
    content = msgspec.msgpack.encode(state)
    return SEAL + hashlib.blake2b(content, digest_size=DIGEST_BYTES).digest() + content


def unsealed(stored: Any) -> dict[str, Any] | None:
    """The state from `sealed`'s bytes, or from the bare MessagePack or JSON of older versions. Raises ERRORS."""
    if stored is None:
        return None
    if isinstance(stored, str):
        return dict(json.loads(stored))
    if not isinstance(stored, bytes):
        raise TypeError("the state of its search is no bytes")
    if stored[:1] != SEAL:
        return dict(msgspec.msgpack.decode(stored))
    digest, content = stored[1 : 1 + DIGEST_BYTES], stored[1 + DIGEST_BYTES :]
    if hashlib.blake2b(content, digest_size=DIGEST_BYTES).digest() != digest:
        raise ValueError("the state of its search is damaged")
    return dict(msgspec.msgpack.decode(content))
