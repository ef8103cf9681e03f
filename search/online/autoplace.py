"""Wraps a training step in one line: it searches for a better mapping while it trains, or runs under a known one."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Mapping as MappingABC
from pathlib import Path
from typing import Any

from placer.graph.mapping import Mapping
from placer.splits.plan_files import BATCH_NORM, SPLIT_OFF
from search.defaults import DEFAULT_SEARCHER
from search.online.auto_step import AutoStep
from search.online.settings import BUDGET, OnlineSettings


def autoplace(
    step: Callable[..., Any],
    *,
    devices: str | None = None,
    budget: int = BUDGET,
    seed: int = 0,
    searcher: str = DEFAULT_SEARCHER,
    store: str | Path | None = None,
    include_local: bool = False,
    max_memory: MappingABC[str, str | int] | None = None,
    beat_untouched: bool = True,
    sync_every: int | None = None,
    dry_run: bool = False,
    log_dir: str | Path | None = None,
    split: str | Path = SPLIT_OFF,
    split_batchnorm: str = BATCH_NORM[0],
) -> AutoStep:
    """Wrap a training step: `step = placer.autoplace(train_step)`; then train as before.

    Every call is one real training step and returns what the step returns. Meanwhile Placer searches for a faster
    mapping of its ops to devices, and searches again when the load changes. docs/contract.md says what is guaranteed of
    the training, and which steps are left alone.

    step: any function that trains tf.Variables, a tf.function or not. A plain Python step must not do what a trace
    would do only once (docs/guide.md, Autoplace): otherwise it runs untouched, and one line on stderr says why.
    devices: as for `placer search`: None = this process's GPUs and CPU, "gpus:N", "cpus:N" (call `placer.split` with it
    before anything else), "workers:N", "host:port,host:port", "ray:N", "topology.json".
    budget: mappings measured at most, single devices included.
    seed: of the searcher: the same seed proposes the same mappings, given the same measurements.
    searcher: what proposes mappings, as for `placer search --searcher`. Mappings of the default searcher are measured
    only if they are predicted to pay; another searcher's are all measured, until the budget is spent.
    store: SQLite file in which results are kept.
    include_local: with workers, let this process compute, too.
    max_memory: the most that devices may hold, such as {"worker:0": "800MiB"}: variables and tensors, as simulated.
    beat_untouched: whether the untouched step, in this process on all its cores, competes with every mapping, and the
    training goes back to it if it is faster. False keeps the training on the devices that you name, for instance to
    leave this machine to others.
    sync_every: if devices are other processes, steps between snapshots at most; training goes on from the last snapshot
    when a device is lost. None = as often as costs 0.3 % of the time.
    dry_run: when the load changes, only report what would be tried.
    log_dir: folder for placer.jsonl, and for TensorBoard scalars if tensorboard is installed.
    split: as for `placer search --split`: "off"; "auto", to try also mappings of the step with divided ops, if that is
    predicted to pay; or a mapping file whose plan of splits is taken. Divided ops round differently.
    split_batchnorm: "exact": divided batch normalisation takes the statistics of the whole batch; "local": each part
    takes its own, which changes the mathematics as data-parallel training does. This concerns only divided steps: while
    a search tries the untouched step and mappings of whole ops beside them, steps with the statistics of the whole
    batch and steps with those of each part take turns in one training.
    That mappings are measured while the training goes on is the idea of HTF-MPR (Albaqsami, Hosseini & Bagherzadeh
    2018; docs/htf-mpr.md says what differs); the default searcher is Placer's own (docs/decisions/007-hybrid.md).
    Returns the step to call; close it, or use it in a `with` block. Raises BadInputError for an invalid argument.
    """
    settings = OnlineSettings(
        budget=budget, seed=seed, searcher=searcher, split=str(split), split_batchnorm=split_batchnorm,
        beat_untouched=beat_untouched, dry_run=dry_run,
    )  # fmt: skip
    return AutoStep(
        step, devices=devices, include_local=include_local, max_memory=max_memory, settings=settings, store=store,
        sync_every=sync_every, log_dir=log_dir,
    )  # fmt: skip


def place(
    step: Callable[..., Any],
    mapping: str | Path | Mapping,
    *,
    devices: str | None = None,
    include_local: bool = False,
    max_memory: MappingABC[str, str | int] | None = None,
    sync_every: int | None = None,
    match_by_name: bool = False,
    log_dir: str | Path | None = None,
) -> AutoStep:
    """Wrap a training step to run under a stored mapping, a mapping file, without any search.

    Ops that share a device run in the `order` of the file, if it has one; a `Mapping` has none.
    The first two calls run untouched, or the first four of a plain Python step; from then on the step is placed.
    A mapping of a divided step (`placer search --split`) divides this step, too, and its variables while it is placed.
    If the plan of splits has `local` batch normalisation, each part normalises by its own statistics from then on,
    which changes the mathematics; steps that run untouched take the statistics of the whole batch.
    match_by_name: take a mapping of another graph by the names of its ops; without it such a mapping is refused. Other
    arguments as for `autoplace`.
    The call that would place the step raises BadInputError if the mapping does not fit.
    """
    settings = OnlineSettings(search=False, adapt=False)
    return AutoStep(
        step, devices=devices, include_local=include_local, max_memory=max_memory, settings=settings,
        sync_every=sync_every, mapping=mapping, match_by_name=match_by_name, log_dir=log_dir,
    )  # fmt: skip
