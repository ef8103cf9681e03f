"""Checks the arguments of `autoplace` and `place`, before anything is started."""

from __future__ import annotations

from typing import Any, NoReturn

from placer.devices.logical import split
from placer.devices.specs import SPECS, check_spec
from placer.errors import BadInputError, listed
from placer.splits.plan_files import SPLIT_AUTO, SPLIT_OFF, check_split, read_plan
from placer.trace.python.kinds import has_base
from placer.train.steps.modes import WHOLE
from placer.wrapped import Wrapped, hidden_by, is_function
from search.online.settings import OnlineSettings

KERAS_MODEL = frozenset({"Model"})


def check_arguments(step: Any, devices: str | None, settings: OnlineSettings | None, sync_every: int | None) -> None:
    """Raise BadInputError now for arguments that would otherwise fail later, within the training."""
    if not callable(step):
        raise BadInputError(f"a {type(step).__name__} is no training step; pass a function.")
    if settings is not None and settings.budget < 1:
        raise BadInputError(f"budget is {settings.budget}; give at least 1.")
    if settings is not None and settings.planned(WHOLE).is_chosen:
        from search.session.registry import searcher_type  # slow to import

        searcher_type(settings.searcher)
    if sync_every is not None and sync_every < 1:
        raise BadInputError(f"sync_every is {sync_every}; give at least 1.")
    if devices is not None and not isinstance(devices, str):
        raise BadInputError(f"devices is a {type(devices).__name__}; write {SPECS}.")
    check_spec(devices)
    split(devices)
    if settings is not None:
        check_split(settings.split, settings.split_batchnorm, as_options=False)
    if settings is not None and settings.split not in (SPLIT_OFF, SPLIT_AUTO):
        try:
            read_plan(settings.split)
        except BadInputError as error:
            raise BadInputError(
                f"split is {settings.split!r}, which is neither {SPLIT_OFF!r} nor {SPLIT_AUTO!r} nor a mapping file "
                f"with splits: {error}"
            ) from None


def refuse_hiding(step: Any, wrapper: type[Wrapped]) -> None:
    """Raise BadInputError if the wrapped step would hide a public attribute of `step`: of an object, such as a method
    `save`, or one that a program has put on a function, such as `steps`. Keras models are not checked.

    wrapper: the class of the wrapped step.
    """
    if (said := hidden_by(wrapper, step)) is not None:
        raise BadInputError(said)
    if is_function(step) or has_base(type(step), KERAS_MODEL):
        return
    own = {name for held in (*type(step).__mro__[:-1], step) for name in getattr(held, "__dict__", ())}
    hidden = sorted(name for name in own - {"name"} if not name.startswith("_") and wrapper.keeps(name))
    if hidden:
        kind = type(step).__name__
        raise BadInputError(
            f"a {kind} has {listed(hidden)} of its own, which the wrapped step would hide; wrap its call alone, and go "
            f"on to use the {kind} for the rest: step = placer.autoplace(trainer.__call__)."
        )


def refuse_method(name: str, owner: type | None, *_: object, **__: object) -> NoReturn:
    """Raise BadInputError; called in place of a method that was wrapped in its class `owner`, and so has no `self`."""
    if name == "train_step" and owner is not None and has_base(owner, KERAS_MODEL):
        raise BadInputError(
            f"{name} is the method of a Keras model of which fit makes a function; give fit a callback instead: "
            "callbacks=[placer.keras.AutoPlace()]."
        )
    raise BadInputError(
        f"{name} is a method that was wrapped in its class; wrap it where the object is made: "
        f"self.{name} = placer.autoplace(self.{name})."
    )
