"""A training step that Placer runs: every call is a real step, and the search for a better mapping goes on inside."""

from __future__ import annotations

import time
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from collections.abc import Mapping as MappingABC
from functools import partial
from pathlib import Path
from statistics import median
from types import MethodType
from typing import Any

import tensorflow as tf

from placer.devices.host.suspends import Suspends, in_words
from placer.devices.specs import check_max_memory
from placer.errors import BadInputError, PlacerError
from placer.files import write_whole
from placer.graph.mapping import Mapping
from placer.graph.mapping_files import mapping_file, write_mapping
from placer.graph.memory_limits import MemoryLimits
from placer.measure.store import Store
from placer.splits.plan_files import plans_in, regions_of
from placer.train.device_session import DeviceSession
from placer.train.live_step import LiveStep
from placer.train.steps.modes import UNTOUCHED, WHOLE, Placed, Wanted
from placer.wrapped import Wrapped, unwrapped
from search.online.arguments import check_arguments, refuse_hiding, refuse_method
from search.online.controller import Controller
from search.online.given_mapping import given
from search.online.giving_back import give_back, give_back_soon
from search.online.journal import Journal
from search.online.report.text import as_html, as_text
from search.online.script_run import ScriptRun
from search.online.settings import OnlineSettings
from search.online.trials.tried import LiveTrial

REMEMBERED, ENOUGH = 24, 3  # untouched steps remembered, and the fewest that give a median


def _is_in_replica() -> bool:
    """Whether this thread runs the part of one replica under a distribution strategy."""
    return tf.distribute.has_strategy() and not tf.distribute.in_cross_replica_context()


class AutoStep(Wrapped):
    """A training step that Placer runs: call it like the step it was made from, whose name and attributes it has.

    Made by `autoplace` and `place` (search/online/autoplace.py). Use it from one thread. The user's variables are up to
    date whenever they are read, by Python, a tf.function, a checkpoint or Keras.
    """

    own_names = frozenset({"settings", "name", "steps"})
    settings: OnlineSettings
    name: str
    steps: int  # calls so far

    def __init__(
        self,
        step: Callable[..., Any],
        *,
        devices: str | None = None,
        include_local: bool = False,
        max_memory: MappingABC[str, str | int] | None = None,
        settings: OnlineSettings | None = None,
        store: str | Path | None = None,
        sync_every: int | None = None,
        log_dir: str | Path | None = None,
        mapping: str | Path | Mapping | None = None,
        match_by_name: bool = False,
        clock: Callable[[], float] = time.perf_counter,
        suspends: Suspends | None = None,
    ) -> None:
        """Use `autoplace` or `place`."""
        check_arguments(step, devices, settings, sync_every)
        former, step = step, unwrapped(step)
        refuse_hiding(step, AutoStep)
        super().__init__(step)
        limits = MemoryLimits.of(max_memory)
        check_max_memory(limits, devices, include_local)
        plans = self._plans = plans_in(mapping)
        name = getattr(step, "__name__", None) or type(step).__name__
        vars(self).update(settings=settings or OnlineSettings(), name=name, steps=0)
        self._mapping, self._match_by_name = mapping, match_by_name
        self._store = Store(store) if store is not None else None
        self._journal = Journal(Path(log_dir) if log_dir is not None else None, self.settings.dry_run)
        if isinstance(former, AutoStep):
            former.close()
        self._session = DeviceSession.of(devices, include_local, limits)
        if sync_every is not None:
            self._session.sync_every = sync_every
        self._live = LiveStep(step, self._session, self.name, clock, plans)
        self._controller = Controller(self._live, self._journal, self.settings, self._store, clock)
        self._run = ScriptRun(self._live, self._controller, self._journal, None if mapping is None else self._given)
        self._unsent = 0  # how many of the next calls the script need not be sent
        self._latest_untouched_s: deque[float] = deque(maxlen=REMEMBERED)  # before the devices are joined
        self._losses = len(self._session.recovery.losses)
        self._suspends = suspends or Suspends()
        self._finalizer = weakref.finalize(
            self, give_back_soon, self._session, self._live.entry, self._live.thread, self._controller.planners
        )
        self._finalizer.atexit = False  # workers and planner end with this process

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run one training step, and return what it returns. Raises what the step raises."""
        if _is_in_replica():
            return self._by_strategy(args, kwargs)
        if self.is_over:
            self._count_calls()
            return self._live.untouched.step(*args, **kwargs)
        if self._unsent and self._live.runs_directly:
            self._unsent -= 1
            self._count_calls()
            return self._live.untouched.step(*args, **kwargs)
        outputs, step_s = self._live.call(args, kwargs, timed=not self._unsent)
        self._count_calls()
        if self._live.untouched.unsaid:
            self._say_unsaid()
        if self._unsent:
            self._unsent -= 1
            return outputs
        if self._run.is_over and self._live.left_alone and self._finalizer.alive:  # the search had given up before
            self._leave_alone()
        elif step_s is not None:
            self._after(step_s)
        else:
            self._after_another()
        return outputs

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        """Return this object. If Python would bind the step that was wrapped to an instance, return a callable that
        raises BadInputError, because this object does not know the step's `self`.
        """
        step = self._live.untouched.step
        if instance is None or isinstance(step, MethodType) or not hasattr(type(step), "__get__"):
            return self
        return partial(refuse_method, self.name, owner)

    def leave_alone(self, why: str) -> None:
        """Run the step untouched for good, from the next call on, and say why."""
        self._live.leave_alone(why)
        self._leave_alone()

    def pass_over(self, calls: int) -> bool:
        """Whether the caller may run `calls` steps itself instead of calling this object, because few calls are looked
        at while the training rests. If True, these steps are already counted, so run them.
        """
        if self._unsent < calls or not self._live.runs_directly:
            return False
        self._unsent -= calls
        self._count_calls(calls)
        return True

    def sync(self) -> None:
        """Bring the user's variables up to date now. They are fetched anyway when they are read."""
        with self._session.lock:
            self._session.replicas.pull()

    @property
    def mapping(self) -> Mapping | None:
        """The mapping by which the ops of the main signature run; None while the step runs untouched."""
        mode = self._live.mode
        return self._live.mapping(mode.op_devices, mode.plan) if isinstance(mode, Placed) else None

    @property
    def splits(self) -> str | None:
        """What is divided in the step as it runs now, in words; None if nothing is."""
        mode = self._live.mode
        return self._live.divided_in_words(mode.plan) if isinstance(mode, Placed) and mode.plan != WHOLE else None

    def save(self, path: str | Path) -> None:
        """Write the mapping that runs now, with its plan of splits, as a mapping file, which `place` applies.

        Raises PlacerError while the step runs untouched, and if the file cannot be written.
        """
        mode, mapping = self._live.mode, self.mapping
        if mapping is None or not isinstance(mode, Placed):
            raise PlacerError(f"{self.name} runs untouched, so that there is no mapping to save; see its report().")
        found = mapping_file(
            mapping, objective="makespan", measured_s=self.step_s, seed=self.settings.seed, searcher=mode.name,
            baseline={"best_single": self.best_single_s, "in_process": self.untouched_s},
            splits=regions_of(self._live.plan(mode.plan)), in_flight=self._live.plan(mode.plan).in_flight,
            order=mode.order,
        )  # fmt: skip
        write_mapping(path, found)

    @property
    def phase(self) -> str:
        """What is going on now: one of the phases in docs/reference.md, such as "searching"."""
        return self._controller.narrator.phase

    @property
    def step_s(self) -> float | None:
        """Seconds of a step in the current mode, as last measured beside others; None while unknown."""
        return self._controller.step_s.get(self._live.mode)

    @property
    def speedup(self) -> float | None:
        """The fastest single device's step time divided by `step_s`; None until both were measured."""
        alone, here = self.best_single_s, self.step_s
        return alone / here if alone and here else None

    @property
    def best_single_s(self) -> float | None:
        """Seconds of a step with all ops on the fastest single device, comparable with `step_s`; None while unknown."""
        return self._controller.best_single_s

    @property
    def untouched_s(self) -> float | None:
        """Seconds of an untouched step: as measured beside other modes if it was, else the median of the last steps
        before the devices were joined; None while unknown.
        """
        beside = self._controller.step_s.get(UNTOUCHED)
        return (
            median(self._latest_untouched_s) if beside is None and len(self._latest_untouched_s) >= ENOUGH else beside
        )

    @property
    def device_names(self) -> tuple[str, ...]:
        """The names of the devices that the step may run on, including lost ones; empty before they are joined."""
        return self._live.joined.topology.names if self._live.is_joined else ()

    @property
    def left_alone(self) -> str | None:
        """Why the step runs untouched for good; None if it does not."""
        return self._live.left_alone

    @property
    def is_over(self) -> bool:
        """Whether the step runs untouched for good, and all that was held for placing it is given back."""
        return self._live.left_alone is not None and self._run.is_over

    @property
    def journal(self) -> Journal:
        """What was decided, and why."""
        return self._journal

    def report(self) -> str:
        """Return as text what was tried, what runs now, and what was decided."""
        return as_text(self)

    def report_html(self, path: str | Path | None = None) -> str:
        """Return the report as one self-contained HTML page with figures. If `path` is given, also write it there.

        Raises PlacerError if the page cannot be written.
        """
        page = self.later_report_html()()
        if path is not None:
            write_whole(path, page.encode())
        return page

    def later_report_html(self) -> Callable[[], str]:
        """Return a function that makes the page of this moment when it is called, even after `close()`."""
        # it takes time to load, and few trainings ask for a page
        from search.online.report.step_record import later_page

        return later_page(self, self._live.mapping)

    def close(self) -> None:
        """End the search, give the devices back, and leave the step's variables up to date and unwatched.

        Afterwards calls run the step untouched. Harmless when called twice.
        """
        if not self._finalizer.alive:
            return
        try:
            self._run.end()
            self._live.leave_alone("closed")
            give_back(self._live, self._controller.planners)
            if self._store is not None:
                self._store.close()
        except Exception:
            self._finalizer.detach()
            raise
        self._finalizer.detach()  # not if Ctrl-C interrupted this, so that it can be called again

    def __enter__(self) -> AutoStep:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<placer.AutoStep {self.name}: {self.phase}, {self.steps} steps>"

    def _repr_html_(self) -> str:
        return as_html(self)

    @property
    def tried(self) -> Sequence[LiveTrial]:
        """The trials so far, in the order in which they were first measured."""
        return self._controller.tried

    @property
    def controller(self) -> Controller:
        """The controller, which decides in which mode each call runs."""
        return self._controller

    def _count_calls(self, calls: int = 1) -> None:
        vars(self)["steps"] += calls  # not `self.steps += calls`, which `Wrapped` refuses to a program

    def _by_strategy(self, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Run a call by a distribution strategy. It calls from one thread per replica, and these threads wait for each
        other within the step, so that no lock is held meanwhile. Raises BadInputError if the strategy needs to be given
        a tf.function itself.
        """
        with self._session.lock:
            if not self._live.left_alone:
                self._live.leave_alone("a distribution strategy runs it (strategy.run)")
                self._run.forget()
                self._controller.end_for_good()
        self._count_calls()
        try:
            return self._live.untouched.step(*args, **kwargs)
        except RuntimeError as error:
            if "merge_call" not in str(error):
                raise
            raise BadInputError(
                f"{self.name} is wrapped, and strategy.run has to be given a tf.function itself, to divide it among "
                f"replicas; give it {self.name}.__wrapped__, or do not wrap it."
            ) from error

    def _given(self) -> Wanted:
        """Return the mapping given, as a device of each captured op; its own plan of splits is the only one."""
        assert self._mapping is not None
        plan = len(self._plans)
        graph, topology = self._live.captured(plan).graph, self._live.joined.topology
        limited = bool(self._session.connection.max_memory.by_device)
        return given(self._mapping, graph, topology, plan, match_by_name=self._match_by_name, limited=limited)

    def _after(self, step_s: float) -> None:
        """Let the script choose the mode of the next call."""
        self._controller.narrator.step = self.steps
        was_asleep = self._tells_suspend()
        if not was_asleep:
            self._journal.scalar(self.steps, "step_s", step_s)
            if self._live.mode is UNTOUCHED and not self._live.is_joined and self.steps > 1:  # the first compiles
                self._latest_untouched_s.append(step_s)
        self._tell_losses()
        if self._run.after(step_s, was_asleep) and step_s:
            self._unsent = self._controller.unseen(step_s)

    def _after_another(self) -> None:
        """Handle a call of a signature other than the main one; the script is sent nothing of it."""
        self._controller.narrator.step = self.steps
        self._tell_losses()
        if self._run.after_another():
            self._latest_untouched_s.clear()  # these steps were of the former signature

    def _leave_alone(self) -> None:
        self._controller.narrator.step = self.steps
        self._run.leave_alone()

    def _tells_suspend(self) -> bool:
        """Whether this machine was suspended since the last look. If it was, note that in the journal."""
        asleep_s = self._suspends.passed_s()
        if asleep_s:
            self._journal.entry(self.steps, "asleep", in_words(asleep_s), seconds=asleep_s)
        return asleep_s > 0

    def _say_unsaid(self) -> None:
        for sentence in self._live.untouched.unsaid:
            self._journal.entry(self.steps, "alone", sentence)
        self._live.untouched.unsaid.clear()

    def _tell_losses(self) -> None:
        for loss in self._session.recovery.losses[self._losses :]:
            numbers = {"repeated": loss.repeated, "forgotten": loss.forgotten, "seconds": loss.seconds}
            self._journal.entry(self.steps, "lost", loss.in_words, **numbers)
        self._losses = len(self._session.recovery.losses)
