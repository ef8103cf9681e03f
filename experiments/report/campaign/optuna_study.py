"""A campaign as Optuna's studies, for its dashboard: one study for each case, one trial for each measurement."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from experiments.campaign.standing import Facts, standing
from experiments.campaign.store import CampaignStore, Held, StoredTrial
from placer.errors import BadInputError, PlacerError, short
from placer.files import write_whole
from placer.result import Measured

BASELINES = ("best_single_s", "untouched_s", "bound_s")


def optuna() -> Any:
    """The module `optuna`. Raises BadInputError if the extra is not installed."""
    try:
        import optuna
    except ImportError as error:
        raise BadInputError(
            "An Optuna study needs optuna, which is not installed: pip install 'placer[optuna]', or export to .csv."
        ) from error
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna


def write_studies(store: CampaignStore, out: str) -> int:
    """Write the studies into a new file, or into a storage that is named as `sqlite:///...`; return how many trials.

    Raises BadInputError if the storage has such a study already, and PlacerError if it cannot be written.
    """
    if "://" in out:
        return _fill(store, out)
    with TemporaryDirectory(prefix="placer-optuna-") as folder:  # so that `out` is never half a file
        whole = Path(folder) / "study.db"
        count = _fill(store, f"sqlite:///{whole}")
        write_whole(out, whole.read_bytes())
    return count


def _fill(store: CampaignStore, url: str) -> int:
    module = optuna()
    from sqlalchemy.exc import SQLAlchemyError

    try:
        with _opened(module, url) as storage:
            cases: dict[str, list[Held]] = {}
            for held in store.held():
                cases.setdefault(held.case_key, []).append(held)
            rows = {row["case"]: row for row in standing(store)["cells"]}
            named = {_study_name(store, key): (rows[key], cells) for key, cells in cases.items()}
            _check_new(storage, list(named), url)
            return sum(_study(module, storage, name, *found) for name, found in named.items())
    except (SQLAlchemyError, module.exceptions.StorageInternalError, ImportError, ValueError) as error:
        raise PlacerError(
            f"{url}: the studies cannot be written: {short(str(error).partition(chr(10))[0])}; check the address."
        ) from None


@contextmanager
def _opened(module: Any, url: str) -> Iterator[Any]:
    """A storage of Optuna's; its connections are closed at the end of the block."""
    storage = module.storages.RDBStorage(url)
    try:
        yield storage
    finally:
        storage.remove_session()
        storage.engine.dispose()


def _study_name(store: CampaignStore, case: str) -> str:
    return f"{store.path.stem}: {case}"


def _check_new(storage: Any, names: Sequence[str], url: str) -> None:
    known = {study.study_name for study in storage.get_all_studies()}
    if twice := next((name for name in names if name in known), None):
        raise BadInputError(f"{url} has a study {short(twice)} already; name another storage.")


def _study(module: Any, storage: Any, name: str, facts: Facts, cells: Sequence[Held]) -> int:
    """Write the study of one case; return the number of its trials."""
    study = module.create_study(study_name=name, storage=storage, direction="minimize")
    study.set_user_attr("value", "seconds a step")
    study.set_user_attr("judged", facts["kind"])
    for name in BASELINES:
        if facts[name] is not None:
            study.set_user_attr(name, facts[name])
    category = module.distributions.CategoricalDistribution
    seeds = sorted({held.seed for held in cells})
    spaces = {"searcher": category(sorted({held.searcher for held in cells})), "seed": category(seeds)}
    trials = [_trial(module, spaces, held, trial) for held in cells for trial in held.trials]
    study.add_trials(trials)
    return len(trials)


def _trial(module: Any, spaces: dict[str, Any], held: Held, trial: StoredTrial) -> Any:
    """A measurement as Optuna's trial; a failed one has no value."""
    result = trial.result
    known = {"n": trial.n, "seconds": trial.seconds, "placement": " ".join(map(str, trial.placement))}
    params = {"searcher": held.searcher, "seed": held.seed}
    if not isinstance(result, Measured):
        known |= {"failed": result.reason, "detail": result.detail, "refused": trial.refused}
        state, value = module.trial.TrialState.FAIL, None
    else:
        known |= {"spread_s": result.spread_s, "repeats": result.repeats, "stopped_early": result.stopped_early}
        states = module.trial.TrialState  # the few steps of one that was stopped early are no best
        state, value = states.PRUNED if result.stopped_early else states.COMPLETE, result.step_s
    return module.trial.create_trial(state=state, value=value, params=params, distributions=spaces, user_attrs=known)
