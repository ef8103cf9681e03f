"""The user's variables on several devices: which replicas are up to date, and how current values are fetched.

There is one replica per variable and place. The rules are those of processor caches (MSI): a step needs up-to-date
replicas at its places; once it has written a variable, only its own replica is up to date; the user's own variable is
one of the replicas, and is fetched when it is read (docs/decisions/009-coherence.md). A place is a device, or, for a
step that divides the variable, the devices of its parts. A replica in parts is up to date or invalid as a whole.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from collections.abc import Mapping as MappingABC
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from typing import Any

import tensorflow as tf

from placer import tf_internals
from placer.devices.variables import wait_for
from placer.devices.workers.deadline import waiting
from placer.errors import BadInputError, warn
from placer.execute.variable_copies import (
    Held,
    Pair,
    Place,
    Transfers,
    held_bytes,
    variables_of,
)
from placer.train.variables.habits import Habits
from placer.train.variables.hooks import unwatch, unwatched, watch, watched_by
from placer.train.variables.places import HOME, blank, nearest, place_of

ASIDE_S = 10.0  # how long a reader in one of TensorFlow's threads waits for the running step


class Use:
    """The replicas that one placed step needs: one of each variable at its place. Also says which of them it writes."""

    def __init__(
        self,
        variables: Sequence[tf.Variable],
        places: Sequence[Place],
        replicas: Sequence[Held],
        written: AbstractSet[int],
    ) -> None:
        """variables: the user's. replicas: one for each. written: positions of those that the step writes."""
        self.keys = [id(variable) for variable in variables]
        self.places = list(places)
        self.replicas = list(replicas)
        self.written = frozenset(written)


class Replicas:
    """All replicas of the variables that steps use, and which of them are up to date."""

    def __init__(
        self, lock: threading.RLock | None = None, mend: Callable[[Exception | None], bool] = lambda _: False
    ) -> None:
        """lock: held while the user's variables are fetched, by any thread. mend: called with the error that TensorFlow
        raised meanwhile, or with None if `is_void`; returns whether to try again.
        """
        self._lock = lock or threading.RLock()
        self._mend = mend
        self.transfers = Transfers()
        self._home: dict[int, tf.Variable] = {}
        self._at: dict[int, dict[Place, Held]] = {}
        self._true: dict[int, set[Place]] = {}  # where replicas are up to date
        self._latest: Use | None = None  # its replicas are still up to date, as its last run left them
        self._writes: set[int] = set()
        self._only_home = False  # whether only the user's own variables, and all of them, are known to be up to date
        self.is_void = False  # whether a recovery was cut short: the next read has `mend` finish it
        self.changes = 0  # how often variables were written
        self.aside: str | None = None  # a reader that cannot be synchronised with steps, in words
        self._habits = Habits()
        self._lent = False  # whether a step now runs on the user's own variables
        self._lending = threading.RLock()  # held briefly, while `_lent` or what is written under it changes

    def adopt(self, variables: Iterable[tf.Variable]) -> bool:
        """Keep these variables of the user up to date from now on; returns whether any was new.

        Raises BadInputError, and adopts none, if steps on other devices keep one of them.
        """
        new = {
            id(variable): variable
            for variable in variables
            if id(variable) not in self._home or watched_by(variable) is None  # adopting it was cut short
        }
        for variable in new.values():
            if watched_by(variable) is not None:
                raise BadInputError(
                    f"its variable {variable.name} is trained by a step that was wrapped with other devices; "
                    "pass the same devices to all steps that share variables"
                )
        for key, variable in new.items():
            self._home[key] = variable
            self._true[key] = {HOME}
            self._at[key] = {HOME: variable}
            watch(variable, self)
        if new:
            self.changes += 1  # what was written to them before was not seen
            handles = {id(tf_internals.variables.handle_of(variable)) for variable in new.values()}
            if any(
                id(tf_internals.variables.current_handle(handle)) in handles
                for handle in tf_internals.resources.dataset_captures()
            ):
                self.aside = "a function of a tf.data pipeline"
        return bool(new)

    @property
    def kept(self) -> list[tf.Variable]:
        """The variables of the user that are kept up to date."""
        return list(self._home.values())

    def disown(self, variables: Iterable[tf.Variable]) -> None:
        """Bring these variables of the user up to date and stop keeping them; no step may use them any more."""
        keys = [id(variable) for variable in variables if id(variable) in self._home]
        if not keys:
            return
        self._fetch_home(keys)
        self._latest = None
        self.transfers.forget()
        for key in keys:
            unwatch(self._home.pop(key))
            del self._at[key], self._true[key]
            self._writes.discard(key)

    def held_bytes(self) -> dict[str, int]:
        """TensorFlow's device name -> bytes of the replicas there, except the user's own. Any thread may call this."""
        found: dict[str, int] = {}
        for at in list(self._at.values()):
            for held in [held for place, held in list(at.items()) if place != HOME]:
                for variable in variables_of(held):
                    found[variable.device] = found.get(variable.device, 0) + held_bytes(variable)
        return found

    def missing(
        self,
        variables: Sequence[tf.Variable],
        places: Sequence[Place],
        spare: MappingABC[tuple[int, Place], Held] | None = None,
    ) -> dict[tuple[int, Place], Held]:
        """Make the blank replicas that `use` would lack at `places`, to be passed to it as `made`. Any thread may call
        this. spare: variables to take as such replicas, whatever their values.
        """
        spare = spare or {}
        made = {
            (id(v), place): spare[id(v), place] if (id(v), place) in spare else blank(v, place)
            for v, place in zip(variables, places, strict=True)
            if place_of(v, place) not in self._at[id(v)]
        }
        wait_for(variable for held in made.values() for variable in variables_of(held))
        return made

    def use(
        self,
        variables: Sequence[tf.Variable],
        places: Sequence[Place],
        written: AbstractSet[int],
        made: MappingABC[tuple[int, Place], Held] | None = None,
    ) -> Use:
        """The replicas at `places`, which have TensorFlow's device names. made: from `missing`, to save time here."""
        for (key, place), replica in (made or {}).items():
            self._at[key].setdefault(place, replica)
        for (key, place), replica in self.missing(variables, places).items():  # another step freed some since
            self._at[key][place] = replica
        places = [place_of(v, place) for v, place in zip(variables, places, strict=True)]
        replicas = [self._at[id(v)][place] for v, place in zip(variables, places, strict=True)]
        return Use(variables, places, replicas, written)

    def drop_unused(self, uses: Iterable[Use]) -> None:
        """Free the replicas that no step in `uses` needs, except those that alone hold a variable's current value."""
        needed = {(key, place) for use in uses for key, place in zip(use.keys, use.places, strict=True)}
        for key, at in self._at.items():
            for place in [p for p in at if p != HOME and (key, p) not in needed]:
                if self._true[key] - {place}:  # without those already freed
                    del at[place]
                    self._true[key].discard(place)

    def before(self, use: Use) -> None:
        """Bring the replicas of `use` up to date; does nothing if `use` ran last and nothing was written since."""
        if self._latest is use:
            return
        self._fetch((key, place) for key, place in zip(use.keys, use.places, strict=True))

    def after(self, use: Use) -> None:
        """Note that `use` has run: of each variable that it wrote, only its replica is up to date."""
        self._habits.after_step()
        self.changes += 1
        if self._latest is use:
            return
        self._only_home = False
        for i, (key, place) in enumerate(zip(use.keys, use.places, strict=True)):
            if i in use.written:
                self._true[key] = {place}
            else:
                self._true[key].add(place)
        self._latest = use

    def keep(self, use: Use) -> dict[int, Any]:
        """Before `use` runs: bring the user's variables up to date, so that `roll_back` can return to them. Returns
        copies of those that `use` will write directly: variable's id -> value.
        """
        self.pull()
        with unwatched():
            return {use.keys[i]: self._home[use.keys[i]].read_value() for i in use.written if use.places[i] == HOME}

    def roll_back(self, use: Use, kept: MappingABC[int, Any]) -> None:
        """After `use` failed half-way: invalidate what it wrote, and restore the user's variables as of `keep`."""
        self._latest = None
        with unwatched():
            for key, value in kept.items():
                self._home[key].assign(value)
        for i in use.written:
            self._true[use.keys[i]] = {HOME}

    def pull(self) -> None:
        """Bring the user's variables up to date."""
        if self.is_void or not self._only_home:
            self._fetch_home(self._home)

    def snapshot(self) -> dict[int, Any]:
        """Variable's id -> its value now, in this process."""
        self.pull()
        with unwatched():
            return {key: variable.read_value() for key, variable in self._home.items()}

    def restore(self, values: dict[int, Any]) -> None:
        """Restore the user's variables from a snapshot and forget all other replicas, because devices were lost."""
        self.lose()
        self.is_void = False
        with unwatched():
            for key, value in values.items():
                self._home[key].assign(value)

    def lose(self) -> None:
        """Forget all replicas except the user's own, because what was on devices is invalid."""
        self._latest = None
        self.transfers.forget()
        for key, variable in self._home.items():
            self._at[key] = {HOME: variable}
            self._true[key] = {HOME}

    def writes(self) -> dict[int, Any]:
        """Return what the user wrote since the last call: variable's id -> value. The user's own are up to date."""
        if not self._writes:
            return {}
        with unwatched():
            found = {key: self._home[key].read_value() for key in self._writes}
        self._writes.clear()
        return found

    def overwrite(self, values: MappingABC[int, Any]) -> None:
        """Write again what `writes` reported."""
        with unwatched():
            for key, value in values.items():
                self._home[key].assign(value)
                self._true[key] = {HOME}
        if values:
            self._latest = None

    def will_read(self, variables: Iterable[tf.Variable]) -> None:
        """Bring these variables up to date, because the user is about to read them, and with them those that the user's
        `habits` name: the usual ones, or all.
        """
        keys = [id(variable) for variable in variables]
        if self._are_home(keys):
            self._habits.read_at_home(keys)
            return  # without waiting for the step that another thread may be taking
        with self._lock:
            if self._are_home(keys):  # also if another thread closed this while it held the lock
                return
            self._habits.read(key for key in keys if not self._are_home([key]))
            if self._habits.wants_all:
                self.pull()
            else:
                self._fetch_home(self._habits.with_usual(keys) & self._home.keys())

    def will_write(self, variables: Iterable[tf.Variable]) -> None:
        """The user may change these variables: from now on only the user's own replicas are up to date."""
        variables = list(variables)
        keys = [id(variable) for variable in variables]
        if self._written_while_lent(keys):
            return
        with self._lock:
            self.will_read(variables)
            self._written(keys)

    def after_write(self, variables: Iterable[tf.Variable]) -> None:
        """As in `Watcher`. A step of another thread may have copied the former values meanwhile, so these variables
        count as written once more. Variables that this step wrote itself do not count, because the function may only
        have read them.
        """
        written = [id(variable) for variable in variables]
        if self._written_while_lent(written):
            return
        with self._lock:
            keys = [key for key in written if HOME in self._true.get(key, ())]
            if keys:
                self._written(keys)

    def read_aside(self, variables: Iterable[tf.Variable], reader: str) -> None:
        """As in `Watcher`. Waits at most ASIDE_S for the running step, because the step may wait for this reader."""
        self.aside = self.aside or reader
        keys = [id(variable) for variable in variables]
        if self._are_home(keys):
            return
        if not self._lock.acquire(timeout=ASIDE_S):
            warn(f"{reader} reads a variable as it was some steps ago.")
            return
        try:
            with tf.init_scope():
                self._fetch_home(keys)
        finally:
            self._lock.release()

    def after_untouched(self) -> None:
        """Note that a step has trained the user's own variables, all up to date before: no other replica is now."""
        with self._lending:
            self.changes += 1
        if not self._only_home:
            self._latest = None
            for key in self._home:
                self._true[key] = {HOME}
            self._only_home = True

    @contextmanager
    def lent(self) -> Iterator[None]:
        """In the block, a step runs on the user's own variables, all of them up to date; the lock is held. Another
        thread may write them without waiting for the lock, because the step may wait for batches from that thread.
        """
        before = self._lent
        with self._lending:
            self._lent = True
        try:
            yield
        finally:
            with self._lending:
                self._lent = before

    def close(self) -> None:
        """Bring the user's variables up to date and stop watching them."""
        self.pull()
        for variable in self._home.values():
            unwatch(variable)
        for held in (self._home, self._at, self._true, self._writes):
            held.clear()
        self._latest = None
        self.transfers.forget()

    def _written_while_lent(self, keys: Sequence[int]) -> bool:
        """Note that the user writes these variables, if that need not wait for the running step; returns whether."""
        with self._lending:
            if not self._lent or not self._are_home(keys):
                return False
            self._written([key for key in keys if key in self._true])
            return True

    def _written(self, keys: Iterable[int]) -> None:
        """Note that the user has written these variables, or is about to: only the user's own are up to date."""
        self.changes += 1
        self._latest = None
        for key in keys:
            self._true[key] = {HOME}
            self._writes.add(key)

    def _are_home(self, keys: Iterable[int]) -> bool:
        """Whether the user's own variables are up to date. Variables that are not kept here always are."""
        return not self.is_void and all(HOME in self._true.get(key, {HOME}) for key in keys)

    def _fetch_home(self, keys: Iterable[int]) -> None:
        if self.is_void:
            self._mend(None)
        try:
            self._fetch((key, HOME) for key in keys)
        except tf.errors.OpError as error:
            if not self._mend(error):
                raise
            self._fetch_home(keys)

    def _fetch(self, wanted: Iterable[tuple[int, Place]]) -> None:
        """Bring these replicas, (variable's id, place), up to date."""
        wanted = list(wanted)
        pairs = self._pairs(wanted)
        if pairs:
            self._latest, self._only_home = None, False
            with unwatched(), waiting("variables were moved", first=True):
                self.transfers(pairs)
            for key, place in wanted:
                self._true[key].add(place)

    def _pairs(self, wanted: Iterable[tuple[int, Place]]) -> list[Pair]:
        return [
            Pair(self._at[key][nearest(self._true[key], place)], self._at[key][place])
            for key, place in wanted
            if place not in self._true[key]
        ]
