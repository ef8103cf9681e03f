"""The signatures that a step was called with: which is the main one, and which must run untouched."""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Hashable, Iterator, Sequence
from itertools import count
from typing import Any

from placer.errors import BadInputError, warn
from placer.trace.capture import TRAINS_NOTHING
from placer.trace.declared import Declared
from placer.trace.iterator_inputs import Feeding
from placer.trace.signature import Layout, Signatures
from placer.trace.untouchable import untouchable, untouchable_now
from placer.train.device_session import DeviceSession
from placer.train.steps.plain_step import PlainStep
from placer.train.steps.untouched import UntouchedFunction
from placer.train.steps.variant import Variant
from placer.train.variables.self_test import unwatchable

MOST_VARIANTS = 16  # signatures that are remembered
MOST_VALUES = 10_000  # calls with different numbers for which Python's first state is remembered
PLAIN_CALLS = 4  # of a plain step before it is captured: one builds, one is judged, two are recorded
LEAD = 2  # calls by which another signature must be ahead to become the main one
# A settled main signature is replaced by one whose share of the RECENT latest calls is above MAJORITY; each time, twice
# as many calls count. If the main one's share is below SCATTERED, too small to advance a search, HALF is enough.
RECENT, MAJORITY = 200, 0.8
SCATTERED, HALF = 0.1, 0.5


class Variants:
    """Finds the signature of each call. Only the training thread may use it, but any thread may `settle`."""

    def __init__(self, untouched: UntouchedFunction, session: DeviceSession, name: str) -> None:
        """name: of the step, for messages."""
        self.untouched, self.session, self.name = untouched, session, name
        self.main: Variant | None = None  # the signature whose mapping is searched; others follow it
        self.left_alone: str | None = None  # why the step must run untouched for good
        self.is_settled = False  # whether the first calls no longer choose the main signature
        self._choosing = threading.Lock()  # not the session's, whose holder may wait for the thread that settles
        self._signatures = Signatures(plain=untouched.plain is not None, declared=Declared.by(untouched.step))
        self._known: dict[Hashable, Variant] = {}
        self._calls = 0
        self._latest: Variant | None = None  # the signature of the latest call
        # `Variant.number` of each of the latest calls; the signatures themselves would keep batches alive.
        self._recent: deque[int] = deque(maxlen=RECENT)
        self._calls_of = Counter[int]()  # number of a signature -> how many of the recent calls are of it
        self._numbers = count()
        self._first_states: dict[int, int] = {}  # `by_value` of calls -> number of Python's state at the first of them
        self._unsaid: list[str] = []  # warnings about signatures that are still to be given

    def __iter__(self) -> Iterator[Variant]:
        return iter(self._known.values())

    def __getitem__(self, key: Hashable) -> Variant:
        return self._known[key]

    def __len__(self) -> int:
        return len(self._known)

    def of(self, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[Variant, Sequence[Any]]:
        """The signature of a call, and its flat tensors. Until the main signature is settled, this may choose another
        main one, because that of the first calls may be rare.
        """
        plain = self.untouched.plain
        self.leave_alone(untouchable_now())
        if self.left_alone is not None and self.main is not None:  # its signature no longer matters
            return self.main, ()
        try:
            key, tensors = self._signatures.of(args, kwargs)
            if plain is not None:
                key = plain.keyed(key, args, kwargs)
                self.leave_alone(plain.why)
            retraced, is_current = self.untouched.retraced, True
            if retraced is not None and self._signatures.by_value is not None:
                key, is_current = self._in_first_state(retraced, self._signatures.by_value, key, args, kwargs)
            variant = self._known.get(key)
            if variant is None:
                variant = self._first_call(key, args, kwargs)
        except BadInputError as error:
            return self._unreadable(str(error)), ()
        variant.is_current, varied = is_current, self._signatures.varied
        if varied and retraced is not None and retraced.why is not None and not variant.refused:
            self.refuse(variant, f"a number among its arguments changes, and {retraced.why}.")
        self._calls += 1
        variant.calls, variant.last = variant.calls + 1, self._calls
        self._count(variant)
        self._hold(variant, args, kwargs)
        if not self.is_settled and self._leads(variant) and self.is_traced(variant):
            self._prefer(variant)
        return variant, tensors

    def _in_first_state(
        self, retraced: PlainStep, by_value: int, key: Hashable, args: Sequence[Any], kwargs: dict[str, Any]
    ) -> tuple[Hashable, bool]:
        """Return the key of a call of a tf.function with numbers, and whether Python is now in the state of the key. If
        numbers count as tensors, the key includes Python's state at the first call with these values: TensorFlow traces
        the function once for each value, while Python is in that state.
        """
        varied = self._signatures.varied
        if not varied and self._calls != 1 and by_value in self._first_states:
            return key, True
        now = retraced.keyed(key, args, kwargs)[0] if self._calls else 0  # the very first call may build layers
        if len(self._first_states) < MOST_VALUES:
            self._first_states.setdefault(by_value, now)
        first = self._first_states.get(by_value, now)
        return ((first, key), first == now) if varied else (key, True)

    def _leads(self, variant: Variant) -> bool:
        """Whether a signature should replace the main one, which is not settled: it is LEAD calls ahead, or the main
        one trains nothing and this one may be traced.
        """
        return variant.calls >= self._main.calls + LEAD or (
            self._main.trains_nothing and variant is not self.main and self.may_trace(variant)
        )

    def settle(self) -> Variant | None:
        """Settle the main signature and return it; None before the first call. Any thread may call this."""
        with self._choosing:
            self.is_settled = True
            return self.main

    def _prefer(self, variant: Variant) -> None:
        with self._choosing:
            if not self.is_settled:  # it may have been settled while this one was traced
                self.main = variant

    @property
    def successor(self) -> Variant | None:
        """The signature of nearly all recent calls, if it is not the settled main one; None if there is none. If hardly
        any recent call is of the main one, more than half of the recent calls are enough.
        """
        if not self.is_settled or self.left_alone is not None or len(self._recent) < (self._recent.maxlen or 0):
            return None
        variant, calls = self._latest, len(self._recent)
        share = HALF if self._recent_calls(self._main) < SCATTERED * calls else MAJORITY
        if variant is None or variant is self.main or self._recent_calls(variant) <= share * calls:
            return None
        return variant if self.is_traced(variant) else None

    @property
    def scattered(self) -> str | None:
        """A message if hardly any recent call is of the main signature and there is no `successor`; else None."""
        calls = len(self._recent)
        if calls < (self._recent.maxlen or 0):
            return None
        of_main = self._recent_calls(self._main)
        if of_main >= SCATTERED * calls or self.successor is not None:
            return None
        return f"{of_main} of the last {calls} calls are of the signature whose mapping is searched"

    def go_over_to(self, variant: Variant) -> None:
        """Make this the main signature. The next change takes twice as many calls, because a program may alternate."""
        self.main = variant
        for other in self._known.values():
            other.divided.clear()
        self._recent, self._calls_of = deque(maxlen=2 * (self._recent.maxlen or RECENT)), Counter()

    def forget_placed(self) -> None:
        """Forget all templates, and what was recorded and placed for signatures that follow the main one."""
        for variant in self._known.values():
            variant.following = variant.recorder = None
            variant.templates.clear()

    def _count(self, variant: Variant) -> None:
        """Count a call of this signature among the recent ones."""
        if len(self._recent) == self._recent.maxlen:
            self._calls_of[self._recent[0]] -= 1
        self._recent.append(variant.number)
        self._calls_of[variant.number] += 1

    def _recent_calls(self, variant: Variant) -> int:
        """How many of the recent calls are of this signature."""
        return self._calls_of[variant.number]

    def _hold(self, variant: Variant, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        """Hold the arguments of the latest call until its signature is traced, and drop those of another signature."""
        if self._latest is not None and self._latest is not variant:
            self._latest.forget_arguments()
        self._latest = variant
        if not variant.is_traced and self.left_alone is None:
            variant.args, variant.kwargs = args, kwargs

    @property
    def is_ready(self) -> bool:
        """Whether enough steps ran untouched to capture the main signature; also True if the step is left alone, or was
        not called yet.
        """
        if self.left_alone is not None or self.main is None:
            return True
        if self.main.trains_nothing and not self.is_settled:
            return False
        return self.untouched.plain is None or (self.main.traced is not None and self.main.calls >= PLAIN_CALLS)

    def leave_alone(self, why: str | None) -> None:
        """Run the step untouched for good, unless `why` is None. What wrapped the step reports that once."""
        if why is None or self.left_alone is not None:
            return
        self.left_alone = why
        self.let_go()

    def let_go(self) -> None:
        """Hold nothing of the user's except the step itself, because it is left alone for good."""
        for variant in self._known.values():
            variant.forget_arguments()
        for judge in (self.untouched.plain, self.untouched.retraced):
            if judge is not None:
                judge.end()

    def forget(self) -> None:
        """Forget the signatures, too, because their keys hold the user's objects. Only for a step that is left alone,
        and of which no call has to be repeated any more.
        """
        self._signatures.forget()
        self._known.clear()
        self._recent.clear()
        self._calls_of.clear()
        if self.main is not None:
            self.main = self._latest = _no_signature()

    def may_trace(self, variant: Variant) -> bool:
        """Whether enough calls ran untouched: the first of a plain step may build layers, the second is judged."""
        return variant.calls > (1 if self.untouched.plain is None else 2)

    def is_traced(self, variant: Variant) -> bool:
        """Whether a signature can be placed, as far as tracing it shows; says why not, once. False for a signature that
        is not traced yet while Python is in another state than that of its key.
        """
        if variant.refused or self.left_alone is not None or not (variant.is_traced or variant.is_current):
            return False
        if not variant.is_traced:
            why = self.untouched.trace(variant)
            variant.is_traced = True  # not before: Ctrl-C may end the trace, and the next call traces again
            variant.forget_arguments()
            if why is None and variant.trains_nothing and not self.is_settled:
                why = TRAINS_NOTHING + (". No mapping is searched until it does" if variant is self.main else "")
                self.refuse(variant, why)
            elif why is None:
                variant.feeding = Feeding.of(variant.layout)
            elif (variant is self.main and not self.is_settled) or self._shows_an_effect:
                self.leave_alone(why)
            else:
                self.refuse(variant, why)
            return why is None
        return True

    @property
    def _shows_an_effect(self) -> bool:
        """Whether a plain step has done something that no trace can stand for, with any signature."""
        return self.untouched.plain is not None and self.untouched.plain.why is not None

    def refuse(self, variant: Variant, why: str) -> None:
        """Run this signature untouched for good, and say why once the call has ended."""
        variant.refused = True
        why = why if why.endswith(".") else f"{why}."
        self._unsaid.append(f"{self.name}: {why} Calls of this signature run untouched.")

    def warn(self) -> None:
        """Warn of what was refused; to be called after a call of the step, because a program may turn warnings into
        errors.
        """
        while self._unsaid:
            warn(self._unsaid.pop(0))

    @property
    def _main(self) -> Variant:
        assert self.main is not None
        return self.main

    def _first_call(self, key: Hashable, args: Sequence[Any], kwargs: dict[str, Any]) -> Variant:
        variant = Variant(key, (), {}, self._signatures.layout(args, kwargs), next(self._numbers))
        if self.main is None:
            plain = self.untouched.plain
            self.leave_alone(untouchable(self.untouched.step) or unwatchable())
            if plain is not None:
                self.leave_alone(plain.why_by_call(args, kwargs))
            self.main = variant  # not before: if Ctrl-C interrupts this, the next call checks again
        self._known[key] = variant
        if len(self._known) > MOST_VARIANTS:
            self._drop_one()
        return variant

    def _unreadable(self, why: str) -> Variant:
        """Leave the step alone because a call has no signature, and return the main signature in its place."""
        self.leave_alone(why)
        if self.main is None:
            self.main = _no_signature()
        return self.main

    def _drop_one(self) -> None:
        """Forget the signature whose latest call is the oldest, with what was captured and placed for it."""
        others = (variant for variant in self._known.values() if variant is not self.main)
        oldest = min(others, key=lambda variant: variant.last or self._calls + 1)
        if self.session.fragile:
            self.session.save()  # so that no step of it has to be repeated
        del self._known[oldest.key]
        captured, oldest.captured = oldest.captured, None
        oldest.following = oldest.recorder = None
        oldest.templates.clear()
        oldest.divided.clear()
        if captured is not None:
            self.session.disown(captured.variables.values())


def _no_signature() -> Variant:
    """A stand-in for the signature of every call, if the step is left alone."""
    return Variant(None, (), {}, Layout(((), {}), (), ()))
