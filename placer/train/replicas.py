"""The caller's variables on several devices: which copies are true, and how the truth gets to where it is needed.

There is one copy per variable and device, and the rules are those of processor caches (MSI): a step needs true copies
on its devices; what it writes is true there alone; the caller's own variable is one copy among the others, fetched when
somebody looks (docs/decisions/009-coherence.md).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from collections.abc import Mapping as MappingABC
from collections.abc import Set as AbstractSet
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import tensorflow as tf

from placer.devices.variables import blank_variable, wait_for
from placer.execute.variable_copies import Pair, Transfers
from placer.train.variable_hooks import unwatch, unwatched, watch

HOME = ""
SINGLY = 3  # so many variables are fetched one by one; then all at once, for the caller seems to want them all


class Use:
    """What one way to run a step needs of the variables: a copy of each on its device, and which it writes."""

    def __init__(
        self, variables: Sequence[tf.Variable], copies: Sequence[tf.Variable], written: AbstractSet[int]
    ) -> None:
        """variables: the caller's. copies: one for each. written: positions of those that a step writes."""
        self.keys = [id(variable) for variable in variables]
        self.copies = list(copies)
        self.places = [
            HOME if copy is variable else copy.device for variable, copy in zip(variables, copies, strict=True)
        ]
        self.written = frozenset(written)


class Copies:
    """All copies of the variables that steps use, and who holds the truth."""

    def __init__(
        self, lock: AbstractContextManager[Any] | None = None, mend: Callable[[Exception], bool] = lambda _: False
    ) -> None:
        """lock: held while the caller's variables are fetched for him, from whatever thread. mend: called with
        what TensorFlow raised meanwhile; whether it is worth another try.
        """
        self._lock = lock or nullcontext()
        self._mend = mend
        self.transfers = Transfers()
        self._home: dict[int, tf.Variable] = {}
        self._at: dict[int, dict[str, tf.Variable]] = {}
        self._true: dict[int, set[str]] = {}
        self._latest: Use | None = None  # whose copies are true as its last run left them
        self._writes: set[int] = set()
        self.changes = 0  # how often anybody wrote
        self.read_within = False  # whether a Python function within a step looked at a variable
        self._singly = 0

    def adopt(self, variables: Iterable[tf.Variable]) -> bool:
        """Keep these variables of the caller true from now on; whether any was new."""
        before = len(self._home)
        for variable in variables:
            key = id(variable)
            if key not in self._home:
                self._home[key] = variable
                self._true[key] = {HOME}
                self._at[key] = {HOME: variable}
                watch(variable, self)
        return len(self._home) > before

    def missing(self, variables: Sequence[tf.Variable], devices: Sequence[str]) -> dict[tuple[int, str], tf.Variable]:
        """Blank copies of what `use` would lack on `devices`, to be handed to it. Any thread may make them."""
        made = {
            (id(v), device): blank_variable(device, v)
            for v, device in zip(variables, devices, strict=True)
            if _place(v, device) not in self._at[id(v)]
        }
        wait_for(made.values())
        return made

    def use(
        self,
        variables: Sequence[tf.Variable],
        devices: Sequence[str],
        written: AbstractSet[int],
        made: MappingABC[tuple[int, str], tf.Variable] | None = None,
    ) -> Use:
        """The copies on `devices`, TensorFlow's name for each variable. made: from `missing`."""
        made = self.missing(variables, devices) if made is None else made
        for (key, device), copy in made.items():
            self._at[key].setdefault(device, copy)
        copies = [self._at[id(v)][_place(v, device)] for v, device in zip(variables, devices, strict=True)]
        return Use(variables, copies, written)

    def drop_unused(self, uses: Iterable[Use]) -> None:
        """Free the copies that none of `uses` needs and that hold no truth of their own."""
        needed = {(key, place) for use in uses for key, place in zip(use.keys, use.places, strict=True)}
        for key, at in self._at.items():
            for place in [p for p in at if p != HOME and (key, p) not in needed and self._true[key] - {p}]:
                del at[place]
                self._true[key].discard(place)

    def before(self, use: Use) -> None:
        """Make the copies of `use` true; nothing to do where it ran last and nobody wrote since."""
        if self._latest is use:
            return
        self._fetch((key, place) for key, place in zip(use.keys, use.places, strict=True))

    def after(self, use: Use) -> None:
        """`use` has run: what it wrote is true there alone."""
        self._singly = 0
        self.changes += 1
        if self._latest is use:
            return
        for i, (key, place) in enumerate(zip(use.keys, use.places, strict=True)):
            if i in use.written:
                self._true[key] = {place}
            else:
                self._true[key].add(place)
        self._latest = use

    def pull(self) -> None:
        """Make the caller's variables true."""
        self._fetch_home(self._home)

    def snapshot(self) -> dict[int, Any]:
        """Variable's id -> its value now, in this process."""
        self.pull()
        with unwatched():
            return {key: variable.read_value() for key, variable in self._home.items()}

    def restore(self, values: dict[int, Any]) -> None:
        """Go back to a snapshot; all other copies are void. For when devices are lost, or a step broke off half-way."""
        self.lose()
        with unwatched():
            for key, value in values.items():
                self._home[key].assign(value)

    def lose(self) -> None:
        """All copies but the caller's are gone, whatever they held."""
        self._latest = None
        self.transfers.forget()
        for key, variable in self._home.items():
            self._at[key] = {HOME: variable}
            self._true[key] = {HOME}

    def writes(self) -> dict[int, Any]:
        """What the caller wrote since this was asked last: variable's id -> value. They are true in this process."""
        if not self._writes:
            return {}
        with unwatched():
            found = {key: self._home[key].read_value() for key in self._writes}
        self._writes.clear()
        return found

    def overwrite(self, values: MappingABC[int, Any]) -> None:
        """Write what `writes` told of once more."""
        with unwatched():
            for key, value in values.items():
                self._home[key].assign(value)
                self._true[key] = {HOME}
        if values:
            self._latest = None

    def will_read(self, variables: Iterable[tf.Variable]) -> None:
        """The caller looks at his variables."""
        keys = [id(variable) for variable in variables]
        if all(self._true.get(key) is None or HOME in self._true[key] for key in keys):
            return  # without waiting for the step that another thread may be taking
        with self._lock:
            if all(HOME in self._true[key] for key in keys):
                return
            self._singly += len(keys)
            if self._singly > SINGLY:
                self.pull()
            else:
                self._fetch_home(keys)

    def will_write(self, variables: Iterable[tf.Variable]) -> None:
        """The caller may change his variables: from here on they hold the truth."""
        variables = list(variables)
        with self._lock:
            self.will_read(variables)
            self.changes += 1
            for variable in variables:
                self._true[id(variable)] = {HOME}
                self._writes.add(id(variable))
            self._latest = None

    def within_step(self) -> None:
        """As in `Watcher`."""
        self.read_within = True

    def untouched_ran(self) -> None:
        """A step has trained the caller's own variables, all true before: no copy is true any more."""
        self._latest = None
        self.changes += 1
        for key in self._home:
            self._true[key] = {HOME}

    def close(self) -> None:
        """Make the caller's variables true and leave them alone."""
        self.pull()
        for variable in self._home.values():
            unwatch(variable)
        self._home.clear()

    def _fetch_home(self, keys: Iterable[int]) -> None:
        try:
            self._fetch((key, HOME) for key in keys)
        except tf.errors.OpError as error:
            if not self._mend(error):
                raise
            self._fetch_home(keys)

    def _fetch(self, wanted: Iterable[tuple[int, str]]) -> None:
        """Make these copies, (variable's id, place), true."""
        wanted = list(wanted)
        pairs = self._pairs(wanted)
        if pairs:
            self._latest = None
            with unwatched():
                self.transfers(pairs)
            for key, place in wanted:
                self._true[key].add(place)

    def _pairs(self, wanted: Iterable[tuple[int, str]]) -> list[Pair]:
        return [
            Pair(self._at[key][min(self._true[key])], self._at[key][place])
            for key, place in wanted
            if place not in self._true[key]
        ]


def _place(variable: tf.Variable, device: str) -> str:
    return HOME if variable._handle.device == device else device
