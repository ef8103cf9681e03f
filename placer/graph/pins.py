"""Pins: the user keeps ops whose names match a pattern on a device or a kind of device."""

from __future__ import annotations

import re
import warnings
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches

from placer.errors import BadInputError, listed, plain, short
from placer.graph.op_graph import OpGraph
from placer.graph.pin_matching import LIMIT_S, Found, matches
from placer.graph.topology import Device, Topology

MOST_CLOSE, LONGEST = 3, 200  # number of suggestions; letters up to which names are compared for them


@dataclass(frozen=True)
class Pin:
    """Ops whose whole name matches `pattern` run on `device`. Raises BadInputError if `pattern` is no regex."""

    pattern: str  # a regular expression
    device: str  # a device name or kind; a word that is both stands for both, as in an op's `devices`

    def __post_init__(self) -> None:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # FutureWarning: syntax whose meaning may change
                re.compile(self.pattern)
        except (re.error, OverflowError, RecursionError) as error:
            raise BadInputError(
                f"--pin {short(str(self))}: {short(self.pattern)} is no regular expression ({error}); "
                "correct it, or put a backslash before what is meant as it stands."
            ) from None

    def __str__(self) -> str:
        return f"{self.pattern}={self.device}"

    def allows(self, device: Device) -> bool:
        """Whether the pin names `device` or its kind."""
        return self.device in (device.name, device.kind)


def parse_pin(text: str) -> Pin:
    """Parse 'PATTERN=DEVICE', split at the last '='. Raises BadInputError."""
    pattern, parted, device = text.rpartition("=")
    if not parted or not pattern.strip() or not device.strip():
        raise BadInputError(f"--pin {short(text)}: give PATTERN=DEVICE, such as 'embedding.*=cpu'.")
    return Pin(pattern.strip(), device.strip())


def pinned(graph: OpGraph, pins: Sequence[Pin], topology: Topology) -> OpGraph:
    """`graph` with the ops that pins match, and those colocated with them, limited to the pins' devices.

    Raises BadInputError if a pin matches no op or no device, if matching takes too long, if an op cannot run where it
    is pinned, if pins contradict one another, or if the name of a pin's device is also the kind of another device.
    """
    if not pins:
        return graph
    pins_of: list[list[Pin]] = [[] for _ in graph.ops]
    for pin in pins:
        _check_device(pin, topology)
    for pin, matched in _matched(graph, pins):
        for v in matched:
            pins_of[v].append(pin)
    ops = list(graph.ops)
    for unit in graph.colocated:
        if any(pins_of[v] for v in unit):
            names = tuple(device.name for device in _Limited(graph, topology).to(unit, pins_of))
            _check_names(names, topology)
            for v in unit:
                ops[v] = replace(ops[v], devices=names)
    return replace(graph, ops=tuple(ops))


def check_pins(graph: OpGraph, pins: Sequence[Pin]) -> None:
    """As `pinned`, before the devices are known. Raises BadInputError if a pin matches no op, or takes too long."""
    for _ in _matched(graph, pins):
        pass


def _check_names(names: Collection[str], topology: Topology) -> None:
    """Raises BadInputError if one of `names`, to which ops are limited, is also the kind of another device."""
    other = next((d for d in topology.devices if d.kind in names and d.name not in names), None)
    if other is not None:
        raise BadInputError(
            f"--pin: {short(other.kind)} is the name of a device and the kind of {short(other.name)}, so that ops "
            "cannot be kept on that device alone; give it another name."
        )


def _check_device(pin: Pin, topology: Topology) -> None:
    if not any(pin.allows(device) for device in topology.devices):
        kinds = sorted({device.kind for device in topology.devices} - set(topology.names))
        of_kinds = f" and the kinds {listed(kinds)}" if kinds else ""
        raise BadInputError(
            f"--pin {short(str(pin))}: {short(pin.device)} is no device here; the topology has the devices "
            f"{listed(topology.names)}{of_kinds}."
        )


def _matched(graph: OpGraph, pins: Sequence[Pin]) -> Iterator[tuple[Pin, list[int]]]:
    """Each pin and the ops that it matches. Raises BadInputError if a pin matches no op, or takes too long."""
    called = [op.part_of or op.name for op in graph.ops]
    found = iter(matches([pin.pattern for pin in pins], called))
    for pin in pins:
        yield pin, _found_by(graph, pin, next(found, None))


def _found_by(graph: OpGraph, pin: Pin, found: Found | None) -> list[int]:
    """The ops that `pin` matches. found: the result of matching; None if that took too long."""
    if found is None:
        raise BadInputError(
            f"--pin {short(str(pin))}: to match it with the names of graph {short(graph.name)} takes more than "
            f"{LIMIT_S} s; write it without a repeat of what repeats or varies itself, as in '(a+)+' or '(a|a)*'."
        )
    if not found.whole:
        raise BadInputError(
            f"--pin {short(str(pin))}: no op of graph {short(graph.name)} has a name that {short(pin.pattern)} matches "
            f"as a whole{_hint(graph, pin, found.inside)}."
        )
    return found.whole


def _hint(graph: OpGraph, pin: Pin, inside: int | None) -> str:
    """A suggestion for the error line. inside: an op in whose name the pattern is found, if any."""
    if inside is not None:
        op = graph.ops[inside]
        return f"; it is found in {short(op.part_of or op.name)}, so write '.*' where more may stand"
    names = [op.name for op in graph.ops if len(op.name) <= LONGEST]  # comparing long ones takes long
    close = get_close_matches(pin.pattern[:LONGEST], names, 1)
    if close:
        return f"; did you mean {short(close[0])}?"
    word = max(re.findall(r"\w+", pin.pattern), key=len, default="")
    parts = dict.fromkeys(part for name in names for part in name.split("/"))
    close = get_close_matches(word[:LONGEST], parts, MOST_CLOSE)
    return (
        f"; parts of names that come close are {listed(close)}" if close else f"; names have the parts {listed(parts)}"
    )


@dataclass(frozen=True)
class _Limited:
    """Finds the devices that pins leave to a unit."""

    graph: OpGraph
    topology: Topology

    def to(self, unit: Sequence[int], pins_of: Sequence[Sequence[Pin]]) -> list[Device]:
        """The devices that a unit may use. Raises BadInputError if no device is left."""
        left = list(self.topology.devices)
        before: list[tuple[Pin, int]] = []
        for v in unit:
            for pin in pins_of[v]:
                left = [device for device in left if pin.allows(device)]
                if not left:
                    raise self._contradiction(before, pin, v)
                before.append((pin, v))
        for v in unit:
            can = [device for device in left if self.graph.ops[v].runs_on(device)]
            if not can:
                raise self._cannot_run(before, v, left)
            left = can
        return left

    def _contradiction(self, before: Sequence[tuple[Pin, int]], pin: Pin, v: int) -> BadInputError:
        """An error that names two pins without a common device; if only three or more conflict, the last two."""
        apart = [(p, u) for p, u in before if not any(p.allows(d) and pin.allows(d) for d in self.topology.devices)]
        other, u = apart[0] if apart else before[-1]
        name, others = self.graph.ops[v].name, self.graph.ops[u].name
        of = f"op {short(name)}" if u == v else f"op {short(others)} and op {short(name)}, which must share a device,"
        return BadInputError(
            f"--pin {short(str(other))} and --pin {short(str(pin))} contradict each other for {of}: "
            "no device is left; drop one of them, or narrow its pattern."
        )

    def _cannot_run(self, before: Sequence[tuple[Pin, int]], v: int, left: Sequence[Device]) -> BadInputError:
        """An error for op v, which has no cost on any device left, or whose own `devices` exclude them."""
        op = self.graph.ops[v]
        pin, u = next(((p, u) for p, u in before if u == v), before[0])
        with_it = "" if u == v else f", colocated with {short(self.graph.ops[u].name)},"
        can = [device.name for device in self.topology.devices if op.runs_on(device)]
        limited = op.devices is not None and not any(d.name in op.devices or d.kind in op.devices for d in left)
        why = f"its devices are {listed(op.devices or ())}" if limited else "it has no cost there"
        where = f"it can run on {listed(can)}" if can else "it can run nowhere in this topology"
        return BadInputError(
            f"--pin {short(str(pin))}: op {short(op.name)} ({plain(op.type)}){with_it} cannot run on "
            f"{listed([device.name for device in left])}: {why}; {where}."
        )
