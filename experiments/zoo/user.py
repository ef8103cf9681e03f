"""A user's own training step, `file.py:function` or `module:function`; each error in it becomes one line."""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import inspect
import sys
import traceback
from collections.abc import Callable, Collection
from contextlib import chdir, suppress
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, cast

from experiments.zoo.training import TrainingStep
from placer.errors import BadInputError
from placer.files import check_name

Function = Callable[..., Any]
OURS = ("placer", "surrogate", "search", "experiments")
_BEFORE: dict[Path, set[str]] = {}  # the folder that was put on sys.path -> the modules that were imported before
WANTED = "return (step, example_inputs): a function and a tuple of tensors"


@dataclass(frozen=True)
class UserStep:
    """`function` of a file or module, not yet imported; call it with a batch (None = its own) and a seed.

    The seed is not handed on, because Keras, NumPy and Python are already seeded.
    Raises BadInputError, with the exception's type, message and line, if the user's code fails.
    """

    module: str
    path: Path | None
    function: str

    def __call__(self, batch: int | None, seed: int) -> TrainingStep:
        with chdir("."):  # keeps the command's relative paths valid if the user's code changes the folder
            return self._made(batch)

    def _made(self, batch: int | None) -> TrainingStep:
        _see_neighbours(Path.cwd() if self.path is None else self.path.resolve().parent)
        function = _named(_guarded(self._import, self.where), self.function, self.where)
        arguments = {} if batch is None else {"batch": self._takes_batch(function, batch)}
        result = _guarded(lambda: function(**arguments), f"{self.where}:{self.function}")
        return self._checked(result)

    @property
    def where(self) -> str:
        """The file or module, as error lines name it."""
        return self.module if self.path is None else str(self.path)

    def _import(self) -> ModuleType:
        if self.path is None:
            return importlib.import_module(self.module)
        spec = importlib.util.spec_from_file_location(f"_user_{self.module}", self.path)
        assert spec is not None and spec.loader is not None  # the name ends in .py
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        spec.loader.exec_module(module)
        return module

    def _takes_batch(self, function: Function, batch: int) -> int:
        if "batch" not in _parameters(function):
            raise BadInputError(
                f"{self.where}: {self.function}() takes no batch; add a parameter 'batch', or leave it out."
            )
        return batch

    def _checked(self, result: Any) -> TrainingStep:
        if isinstance(result, TrainingStep):
            return result
        where = f"{self.where}: {self.function}()"
        if not (isinstance(result, tuple | list) and len(result) == 2 and callable(result[0])):
            raise BadInputError(f"{where} returned {_kind(result)}; let it {WANTED}.")
        step, inputs = result
        if not isinstance(inputs, tuple | list):
            raise BadInputError(f"{where} returned {_kind(inputs)} as example_inputs; let it {WANTED}.")
        tensors = tuple(_tensor(value, f"{where}, example input {i}") for i, value in enumerate(inputs))
        return TrainingStep(f"{self.module}.{self.function}", step, tensors)


def find(spec: str) -> UserStep:
    """Take `file.py:function` or `module:function` apart, importing nothing yet.

    Raises BadInputError if a half is missing or there is no such file.
    """
    where, _, function = spec.rpartition(":")
    check_name(spec)
    if not where or not function:
        raise BadInputError(f"{spec!r} names no step; write file.py:function or module:function.")
    if not (where.endswith(".py") or "/" in where):
        return UserStep(where, None, function)
    path = Path(where)
    if not path.is_file() or path.suffix != ".py":
        raise BadInputError(
            f"no Python file {where!r} (from {str(Path.cwd())!r}); check the path before ':{function}'."
        )
    return UserStep(path.stem, path, function)


def _see_neighbours(folder: Path) -> None:
    """From now on, let the user's code import the modules of its folder, as a script could. The folder comes last on
    the path, so that it hides nothing. Modules that code of another folder has imported from there since are forgotten,
    because both folders may have a module of the same name.
    """
    for other in [known for known in _BEFORE if known != folder]:
        before, modules = _BEFORE.pop(other), dict(sys.modules)
        tops = {_top(name) for name, module in modules.items() if name not in before and _is_of(module, other)}
        for name in [name for name in modules if name not in before and _top(name) in tops]:
            sys.modules.pop(name, None)
        with suppress(ValueError):
            sys.path.remove(str(other))
    if str(folder) not in sys.path:
        sys.path.append(str(folder))
        _BEFORE[folder] = set(sys.modules)


def _top(name: str) -> str:
    return name.partition(".")[0]


def _is_of(module: ModuleType, folder: Path) -> bool:
    """Whether a module lies in the folder or below it, and is neither installed there nor one of Placer's."""
    try:
        places = [module.__file__] if getattr(module, "__file__", None) else list(module.__path__)
        found = [Path(place) for place in places if place]
    except Exception:  # sys.modules may hold any object
        return False
    below = [Path(path) for path in (sys.prefix, sys.base_prefix, *sys.path) if path and Path(path) != folder]
    installed = [path for path in below if path.is_relative_to(folder)]
    return _top(getattr(module, "__name__", "")) not in OURS and any(
        place.is_relative_to(folder) and not any(map(place.is_relative_to, installed)) for place in found
    )


def _parameters(function: Function) -> Collection[str]:
    try:
        return inspect.signature(function).parameters
    except ValueError:  # some builtins tell none
        return ()


def _named(module: ModuleType, function: str, where: str) -> Function:
    found = getattr(module, function, None)
    if callable(found):
        return cast(Function, found)
    if found is not None:
        raise BadInputError(f"{where}: {function!r} is {_kind(found)}; name a function that can {WANTED}.")
    near = difflib.get_close_matches(function, [n for n in vars(module) if callable(getattr(module, n))], n=1)
    advice = f"did you mean {near[0]!r}?" if near else "check the name after the colon."
    raise BadInputError(f"{where} has no function {function!r}; {advice}")


def _guarded(run: Callable[[], Any], where: str) -> Any:
    """Run the user's code; what it raises becomes one BadInputError."""
    try:
        return run()
    except (Exception, SystemExit) as error:
        message = " ".join(str(error).split())
        line = f" (line {_line(error)})" if _line(error) else ""
        said = f"{type(error).__name__}: {message}" if message else type(error).__name__
        raise BadInputError(f"{where} failed with {said}{line}; fix that and run it again.") from error


def _line(error: BaseException) -> str:
    """The line of the user's code that the exception came from, by the last frame outside installed packages; "" if
    there is none.
    """
    frames = [f for f in traceback.extract_tb(error.__traceback__) if _is_users(f.filename)]
    return f"{frames[-1].lineno} of {Path(frames[-1].filename).name}" if frames else ""


def _is_users(filename: str) -> bool:
    return filename != __file__ and "site-packages" not in filename and not filename.startswith((sys.base_prefix, "<"))


def _kind(value: Any) -> str:
    name = type(value).__name__
    return "nothing" if value is None else f"{'an' if name[0] in 'aeiouAEIOU' else 'a'} {name}"


def _tensor(value: Any, where: str) -> Any:
    import tensorflow as tf

    try:
        return tf.convert_to_tensor(value)
    except (TypeError, ValueError):
        raise BadInputError(f"{where} is {_kind(value)}; give a tensor or an array.") from None
