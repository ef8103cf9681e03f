"""The settings of a search: its model, devices, options and limits, and each searcher's share of the measurements."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from pathlib import Path

from experiments.jobs.operator_store import OperatorStore
from placer.errors import BadInputError, short
from placer.graph.defaults import GROUPS, HEADROOM
from placer.graph.memory_limits import NO_LIMITS, MemoryLimits
from placer.graph.pins import parse_pin
from placer.graph.schedules import RANK, check_schedule
from placer.splits.plan import LOCAL, SplitPlan
from placer.splits.plan_files import BATCH_NORM, SPLIT_AUTO, SPLIT_OFF, check_split, read_plan
from search.defaults import DEFAULT_SEARCHER
from search.session.registry import searcher_type

BASELINES = ("expert", "heft", "donf", "random")
DEFAULT_SEARCHERS = (*BASELINES, DEFAULT_SEARCHER)
SPLIT_PIPELINE = "pipeline:"
BASELINE_SHARE = 0.25  # of the measurements left after the single devices


@dataclass(frozen=True)
class SearchSettings:
    """The settings of one search. Nothing is checked before `check`."""

    model: str  # as experiments.zoo.load takes it
    devices: str | None = None  # as placer.devices.opening.open_devices takes it
    _: KW_ONLY
    include_local: bool = False  # whether the coordinating process computes, too
    searchers: tuple[str, ...] | None = None  # asked in this order; None = DEFAULT_SEARCHERS
    measurements: int = 24  # mappings that may be measured, single devices included
    minutes: float | None = None  # after which no race begins once a mapping has run; None = no limit
    seed: int = 0  # of the weights, the example inputs and the searchers
    batch: int | None = None  # examples per step; None = the network's own
    groups: int = GROUPS  # the search moves at most about this many groups
    headroom: float = HEADROOM  # share of each device's memory that stays free
    pins: tuple[str, ...] = ()  # each 'PATTERN=DEVICE', see placer/graph/pins.py
    traced: int = 5  # steps traced on each device to profile it
    warm_up: int = 3  # untraced steps on each device before these
    split: str = SPLIT_OFF  # whether ops are divided: SPLIT_OFF, SPLIT_AUTO, SPLIT_PIPELINE with a number, or a file
    split_batchnorm: str = BATCH_NORM[0]  # one of BATCH_NORM, for plans that are made here; a plan file says its own
    schedule: str = RANK  # one of SCHEDULES: the order in which placed steps run their ops
    finalists: int = 4  # mappings stepped side by side at the end, beside the best single device
    final_s: float | None = None  # seconds that sets how often they are stepped; None = FINAL_REPEATS, or by `minutes`
    operators: Path | None = None  # store of op times from which costs are predicted; None = they are profiled
    max_memory: MemoryLimits = NO_LIMITS  # lowers the memory of devices

    def check(self) -> None:
        """Raises BadInputError for what can be refused before anything is traced."""
        for name in self.searchers or ():
            searcher_type(name)
        for pin in self.pins:
            parse_pin(pin)
        check_schedule(self.schedule)
        if self.measurements < 1:
            raise BadInputError(f"--measurements is {self.measurements}; give at least 1.")
        if self.groups < 2:
            raise BadInputError(f"--groups is {self.groups}; give at least 2.")
        if self.minutes is not None and not self.minutes > 0:
            raise BadInputError(f"--minutes is {self.minutes}; give a number > 0.")
        check_split(self.split, self.split_batchnorm, as_options=True)
        _ = self.plan, self.micro_batches, self.operator_store

    @property
    def is_local(self) -> bool:
        """Whether each part of a batch is normalised with its own statistics."""
        return self.split_batchnorm == LOCAL

    @cached_property
    def plan(self) -> SplitPlan | None:
        """The plan in the file that `split` names; None if it names no file. Raises BadInputError."""
        if self.split in (SPLIT_OFF, SPLIT_AUTO) or self.split.startswith(SPLIT_PIPELINE):
            return None
        try:
            return read_plan(self.split)
        except BadInputError as error:
            raise BadInputError(
                f"--split {short(self.split)} is neither auto, off nor pipeline:M, nor a mapping file with splits: "
                f"{error}"
            ) from None

    @cached_property
    def operator_store(self) -> OperatorStore | None:
        """The store in the file `operators`; None if there is none. Raises BadInputError."""
        return None if self.operators is None else OperatorStore.read(self.operators, self.devices)

    @property
    def micro_batches(self) -> int | None:
        """The number of micro-batches that `split` asks for; None if it asks for none. Raises BadInputError."""
        if not self.split.startswith(SPLIT_PIPELINE):
            return None
        text = self.split.removeprefix(SPLIT_PIPELINE)
        if not (text.isdecimal() and int(text) >= 2):
            raise BadInputError(f"--split is {short(self.split)}; give pipeline:M with M micro-batches, at least 2.")
        return int(text)

    def shares(self, left: int) -> list[tuple[str, int]]:
        """Each searcher with its share of the `left` measurements. The baselines together get BASELINE_SHARE of these,
        or all if there is no other searcher.
        """
        names = self.searchers or DEFAULT_SEARCHERS
        baselines = [name for name in names if name in BASELINES]
        others = [name for name in names if name not in BASELINES]
        for_baselines = left if not others else int(left * BASELINE_SHARE) if baselines else 0
        return [*_equal_shares(for_baselines, baselines), *_equal_shares(left - for_baselines, others)]


def _equal_shares(total: int, names: list[str]) -> list[tuple[str, int]]:
    """`total` in parts as equal as possible, the larger ones first."""
    return [(name, total // len(names) + (i < total % len(names))) for i, name in enumerate(names)]
