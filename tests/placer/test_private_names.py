"""Private names of TensorFlow, Keras and numba stand in placer/tf_internals/, and elsewhere only as listed here."""

from __future__ import annotations

import ast
import importlib.util
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from placer.trace.python.kinds import (
    CALLBACKS,
    COMPILED_METRICS,
    FUNCTIONAL,
    GIVEN_METRICS,
    KERAS_NOISE,
    KERAS_OPAQUE,
    KERAS_VARIABLE_SETTINGS,
    KERAS_VARIABLES,
    LAYERS,
    OPERATIONS,
)

ROOT = Path(__file__).parents[2]
HOME = "placer/tf_internals/"
PRIVATE_MODULE = re.compile(r"(tensorflow\.(python|core|compiler|lite)|keras\.src|numba\.\w+)(\.|$)")
PRIVATE_PATHS = {("numba", "core"), ("tf", "python"), ("tensorflow", "python"), ("keras", "src")}
PRIVATE_NAME = re.compile(r"_[A-Za-z]\w*")
OURS = re.compile(r"_placer\w*")
PYTHON = {"_asdict", "_replace", "_exit", "_run_exitfuncs", "_getframe", "_DummyThread", "_fields"}
ALLOWED = {
    # file: its names of private modules, and of attributes; which test fails where a release changes them
    "placer/devices/workers/worker.py": {  # tests/placer/devices/workers/test_workers.py
        "tensorflow.core.protobuf", "tensorflow.python.training",
    },
    "placer/devices/workers/standalone.py": {"tensorflow.python.framework"},  # test_standalone.py, beside the above
    "placer/train/variables/hooks.py": {  # test_hooks.py, and placer/train/variables/self_test.py
        "_handle", "_read_variable_op",
    },
    "placer/trace/op_counts/counts.py": {"_XlaMustCompile"},  # tests/placer/trace/op_counts/test_counts.py
    "search/online/keras_callback.py": {  # tests/search/online/test_keras_callback.py
        "_distribute_strategy", "_make_function",
    },
    "surrogate/jit.py": {  # tests/surrogate/test_jit.py
        "numba.core", "_cache", "_cache_file", "_source_stamp", "_version",
    },
    "experiments/benches/trust/reads.py": {"_handle"},  # a way of reading, as a user's program may have it
}  # fmt: skip
FOREIGN = frozenset().union(*ALLOWED.values())


@cache
def trees() -> dict[str, ast.Module]:
    """The syntax trees of the product, by path."""
    paths = [path for top in ("placer", "surrogate", "search", "experiments") for path in (ROOT / top).rglob("*.py")]
    return {path.relative_to(ROOT).as_posix(): ast.parse(path.read_text()) for path in paths}


@cache
def own_names() -> frozenset[str]:
    """The names that the product itself gives to functions, classes, variables and attributes."""
    found = set()
    for node in (node for tree in trees().values() for node in ast.walk(tree)):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            found.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif (
            isinstance(node, ast.Attribute)
            and isinstance(node.ctx, ast.Store)
            and name_of(node.value) in ("self", "cls")
        ):
            found.add(node.attr)
    return frozenset(found) - FOREIGN


def private_names(tree: ast.AST) -> Iterator[str]:
    """Of other libraries: modules that are imported or named by their path, and attributes, also as text."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            base = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            yield from (name for name in base or [alias.name for alias in node.names] if PRIVATE_MODULE.match(name))
        elif isinstance(node, ast.Attribute):
            root = node.value.id if isinstance(node.value, ast.Name) else ""
            if (root, node.attr) in PRIVATE_PATHS:
                yield f"{root}.{node.attr}"
            elif root not in ("self", "cls"):
                yield from attribute(node.attr)
        elif isinstance(node, ast.Call) and name_of(node.func).endswith(("attr", "attr_static", "getter", "get")):
            texts = [arg.value for arg in node.args if isinstance(arg, ast.Constant) and isinstance(arg.value, str)]
            yield from (name for text in texts for name in attribute(text))
        elif (
            isinstance(node, ast.Subscript) and isinstance(node.value, ast.Call) and name_of(node.value.func) == "vars"
        ):
            yield from attribute(str(getattr(node.slice, "value", "")))


def name_of(function: ast.expr) -> str:
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def attribute(name: str) -> Iterator[str]:
    if PRIVATE_NAME.fullmatch(name) and not OURS.fullmatch(name) and name not in PYTHON and name not in own_names():
        yield name


def test_a_private_name_stands_where_its_test_is_known() -> None:
    found = {path: set(private_names(tree)) for path, tree in trees().items() if not path.startswith(HOME)}
    assert {path: names for path, names in found.items() if names} == ALLOWED


@pytest.mark.parametrize(
    ("code", "name"),
    [
        ("from tensorflow.python.eager import context", "tensorflow.python.eager"),
        ("import keras.src.layers", "keras.src.layers"),
        ("tf.python", "tf.python"),
        ("step._jit_compile", "_jit_compile"),
        ("getattr(step, '_autograph', True)", "_autograph"),
        ("vars(variable)['_handle']", "_handle"),
        ("vars(variable).get('_handle')", "_handle"),
        ("operator.attrgetter('_handle')", "_handle"),
    ],
)
def test_a_private_name_is_found(code: str, name: str) -> None:
    assert name in set(private_names(ast.parse(code)))


def test_every_private_call_of_tensorflow_has_a_canary() -> None:
    """What placer/tf_internals/ offers is used by its test, which a new TensorFlow runs first."""
    offered = {
        f"{Path(path).stem}.{node.name}"
        for path, tree in trees().items() if path.startswith(HOME)
        for node in tree.body if isinstance(node, ast.FunctionDef) and not node.name.startswith("_")
    }  # fmt: skip
    canary = (ROOT / "tests/placer/test_tf_internals.py").read_text()
    assert len(offered) > 70
    assert {name for name in offered if f"tf_internals.{name}(" not in canary} == set()


@cache
def keras_source() -> str:
    spec = importlib.util.find_spec("keras")
    assert spec is not None and spec.origin is not None
    return "\n".join(path.read_text() for path in Path(spec.origin).parent.rglob("*.py"))


@cache
def keras_words() -> frozenset[str]:
    return frozenset(re.findall(r"\w+", keras_source()))


@cache
def keras_classes() -> frozenset[str]:
    return frozenset(re.findall(r"^class (\w+)", keras_source(), re.MULTILINE))


@pytest.mark.parametrize("name", sorted(KERAS_NOISE.union(KERAS_VARIABLE_SETTINGS, GIVEN_METRICS, [OPERATIONS])))
def test_keras_still_has_the_attribute(name: str) -> None:
    """One that it no longer has may now be called otherwise; then a step of Keras's would look changed at each call."""
    assert name in keras_words()


CLASSES = KERAS_OPAQUE.union(CALLBACKS, COMPILED_METRICS, FUNCTIONAL, LAYERS, KERAS_VARIABLES & {"Variable"})


@pytest.mark.parametrize("name", sorted(CLASSES))
def test_keras_still_has_the_class(name: str) -> None:
    assert name in keras_classes()
