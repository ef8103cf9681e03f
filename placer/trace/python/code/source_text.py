"""Finds where AutoGraph, which reads a function's source, would do something else than Python, which runs its code."""

from __future__ import annotations

import ast
import functools
import inspect
import textwrap
import warnings
from collections.abc import Iterator
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType, FunctionType, MethodType
from typing import Any

import psutil

from placer import tf_internals
from placer.trace.python.code.instructions import codes_within

LAMBDA = "<lambda>"
BLOCKS = (ast.If, ast.For, ast.While)
SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
KEEPS = (ast.Assign, ast.AnnAssign, ast.NamedExpr, ast.List, ast.Tuple, ast.Set, ast.Dict, ast.Return, ast.IfExp)
KEEPING = frozenset({"append", "insert", "extend", "add", "setdefault", "update", "partial"})
LAZY = frozenset({"map", "filter"})
TAKES_ALL = frozenset({"list", "tuple", "set", "dict", "sum", "sorted", "any", "all", "min", "max", "add_n", "extend"})
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)  # their targets are local to them


def misread(function: FunctionType | MethodType) -> str | None:
    """Why AutoGraph would misread a function's source, in words that follow "it"; None if no reason was found."""
    code = function.__code__
    if _is_imported_as_it_is(function) and is_edited(code) and not tf_internals.autograph.is_converted(code):
        return (
            f"was changed on disk ({Path(code.co_filename).name}) after it was imported, and a trace would read "
            "the new text; start the program again"
        )
    name = late_name(code)
    if name is not None:
        return (
            f"has a lambda that reads `{name}`, which is set in a branch or loop: once the step is traced, the lambda "
            "reads another value of it; make the lambda a function (def), or pass the value as a default argument"
        )
    return None


def _is_imported_as_it_is(function: Any) -> bool:
    """Whether no import hook (pytest's, say) makes other code of the file than Python would."""
    loader = function.__globals__.get("__loader__")
    return loader is None or type(loader) is SourceFileLoader


def is_edited(code: CodeType) -> bool:
    """Whether the text of a function's file has changed since the program began. AutoGraph reads the file when it
    converts the function.
    """
    try:
        found = Path(code.co_filename).stat()
    except (OSError, ValueError):  # of a notebook, say
        return False
    if found.st_mtime < _began_s():
        return False
    return code not in _codes_in(code.co_filename, found.st_mtime_ns, found.st_size)


@functools.lru_cache(maxsize=64)
def _codes_in(path: str, _time_ns: int, _size: int) -> frozenset[CodeType]:
    """The code objects to which a file is compiled; empty if it cannot be compiled."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return frozenset(codes_within(compile(Path(path).read_bytes(), path, "exec", dont_inherit=True)))
    except (OSError, SyntaxError, ValueError):
        return frozenset()


@functools.cache
def _began_s() -> float:
    """The time at which this process began, in seconds since the epoch."""
    return float(psutil.Process().create_time())


@functools.lru_cache(maxsize=4096)
def late_name(code: CodeType) -> str | None:
    """A name that a lambda reads some time after it was made, and that a branch or loop sets meanwhile; None if there
    is none. AutoGraph assumes that a lambda is used where it stands, and makes such a name local to the branch.
    """
    shared = {name for inner in codes_within(code) if inner.co_name == LAMBDA for name in inner.co_freevars}
    if not shared:
        return None
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(code)))
    except (OSError, TypeError, SyntaxError, ValueError):  # AutoGraph cannot read it either
        return None
    scopes = (scope for scope in ast.walk(tree) if isinstance(scope, SCOPES))
    return next((name for scope in scopes for name in _late(scope, shared)), None)


def _late(scope: ast.AST, shared: set[str]) -> Iterator[str]:
    parents = {id(child): parent for parent in _within(scope) for child in ast.iter_child_nodes(parent)}
    blocks = [node for node in _within(scope) if isinstance(node, BLOCKS)]
    for found in _within(scope):
        if not isinstance(found, ast.Lambda) or not _is_kept(found, parents):
            continue
        around = set(map(id, _ancestors(found, parents)))
        given = {argument.arg for argument in ast.walk(found.args) if isinstance(argument, ast.arg)}
        reads = shared & {n.id for n in ast.walk(found.body) if isinstance(n, ast.Name)} - given
        for block in blocks:
            comes_later = (block.lineno, block.col_offset) > (found.lineno, found.col_offset)
            outlives = id(block) in around and not isinstance(block, ast.If) and _outlives(found, block, parents, scope)
            if comes_later or outlives:
                yield from sorted(reads & _stored(block))


def _is_kept(found: ast.Lambda, parents: dict[int, Any]) -> bool:
    """Whether a lambda may outlive the call that it is given to."""
    parent = parents[id(found)]
    if isinstance(parent, ast.keyword):
        parent = parents[id(parent)]
    if isinstance(parent, ast.Call):
        name = _name_of(parent)
        if name in LAZY:
            around = parents.get(id(parent))
            return not (isinstance(around, ast.Call) and _name_of(around) in TAKES_ALL)
        return name in KEEPING
    return isinstance(parent, KEEPS)


def _name_of(call: ast.Call) -> Any:
    return getattr(call.func, "attr", getattr(call.func, "id", None))


def _outlives(found: ast.Lambda, loop: Any, parents: dict[int, Any], scope: ast.AST) -> bool:
    """Whether a lambda that is made in a loop may be called after the loop. It may not if only names hold it that are
    read only in the loop.
    """
    parent = parents[id(found)]
    if not isinstance(parent, (ast.Assign, ast.NamedExpr)):
        return True
    targets = parent.targets if isinstance(parent, ast.Assign) else [parent.target]
    names = {target.id for target in targets if isinstance(target, ast.Name)}
    loads = {n.id for n in _within(scope) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)
             and not loop.lineno <= n.lineno <= loop.end_lineno}  # fmt: skip
    return len(names) < len(targets) or bool(names & loads)


def _ancestors(node: ast.AST, parents: dict[int, Any]) -> Iterator[Any]:
    while id(node) in parents:
        node = parents[id(node)]
        yield node


def _stored(block: ast.AST) -> set[str]:
    own = {id(n) for part in _within(block) if isinstance(part, COMPREHENSIONS) for g in part.generators
           for n in ast.walk(g.target)}  # fmt: skip
    return {n.id for n in _within(block) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
            and id(n) not in own}  # fmt: skip


def _within(scope: ast.AST) -> Iterator[Any]:
    """All nodes of a scope, without those of functions and classes defined in it, but with those of lambdas."""
    left = [scope]
    while left:
        node = left.pop()
        yield node
        left += [child for child in ast.iter_child_nodes(node) if not isinstance(child, SCOPES)]
