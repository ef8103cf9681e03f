"""What AutoGraph makes of a source otherwise than Python of the code is found, and what is alike is not."""

from __future__ import annotations

import importlib.util
import os

import pytest
import tensorflow as tf

from placer.trace.python.code.source_text import is_edited, late_name, misread


def later_in_a_branch(x):
    rate = 1
    scaled = lambda: rate * x  # noqa: E731
    if x > 2:
        rate = 2
    return scaled()


def later_in_a_list(x):
    rate, terms = 1, []
    terms += [lambda: rate * x]
    while x > 2:
        rate, x = 2, x - 1
    return terms[0]()


def of_a_loops_target(x):
    return_later = []
    for rate in (1, 2):
        return_later.append(lambda: rate * x)  # noqa: B023, PERF401
    return [later() for later in return_later]


def lazy_map(x):
    rate = 1
    lazy = map(lambda item: rate * item, x)  # noqa: C417
    if len(x) > 2:
        rate = 2
    return list(lazy)


def used_at_once(x):
    rate = 1
    first = max(x, key=lambda item: rate * item)
    if first > 2:
        rate = 2
    return rate


def set_before(x):
    rate = 1
    if x > 2:
        rate = 2
    scaled = lambda: rate * x  # noqa: E731
    return scaled()


def its_own_name(x):
    scaled, y = lambda rate: rate * x, 0
    for rate in (1, 2):
        y = y + rate
    return scaled(y)


def by_default(x):
    return_later = []
    for rate in (1, 2):
        return_later.append(lambda rate=rate: rate)  # noqa: PERF401
    return [later() + x for later in return_later]


def a_function(x):
    rate = 1

    def scaled():
        return rate * x

    if x > 2:
        rate = 2
    return scaled()


@pytest.mark.parametrize("function", [later_in_a_branch, later_in_a_list, of_a_loops_target, lazy_map])
def test_a_name_that_a_lambda_reads_later_is_found(function):
    assert late_name(function.__code__) == "rate"


def name_of_its_own_comprehension(x):
    reg = lambda: [w * x for w in (1, 2)]  # noqa: E731
    for w in (3, 4):
        x = w
    return reg()


def named_and_used_in_the_loop(x):
    total = 0
    for rate in (1, 2):
        scaled = lambda: rate * x  # noqa: B023, E731
        total += scaled()
    return total


def taken_at_once(x):
    out = []
    for rate in (1, 2):
        out += list(map(lambda item: rate * item, x))  # noqa: C417
    return out


@pytest.mark.parametrize(
    "function",
    [used_at_once, set_before, its_own_name, by_default, a_function, named_and_used_in_the_loop, taken_at_once],
)
def test_a_name_that_is_the_same_either_way_is_not(function):
    assert late_name(function.__code__) is None


def test_what_a_comprehension_in_a_lambda_binds_is_its_own():
    assert late_name(name_of_its_own_comprehension.__code__) == "x"  # and not w


@pytest.fixture
def module(tmp_path):
    path = tmp_path / "users.py"
    path.write_text("def rate():\n    return 0.1\n\n\nclass Model:\n    def call(self):\n        return 1\n")
    spec = importlib.util.spec_from_file_location("users", path)
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return path, found


@pytest.mark.parametrize(
    ("old", "new", "edited"),
    [
        ("0.1", "0.1", False), ("0.1", "0.01", True), ("return 1\n", "return 1  # one\n", False),
        ("def rate", "\ndef rate", True), ("return 0.1", "return (", True),
        ("return 1\n", 'return "\\d" is 1\n', False),
    ],
)  # fmt: skip
def test_a_function_whose_file_has_another_text_of_it_since_is_found(module, old, new, edited):
    path, found = module
    assert not is_edited(found.rate.__code__) and not is_edited(found.Model.call.__code__)
    path.write_text(path.read_text().replace(old, new))
    assert is_edited(found.rate.__code__) == edited
    os.utime(path, (0, 0))  # long before this process began
    assert not is_edited(found.rate.__code__)


def test_what_is_converted_already_is_not_read_again(module):
    path, found = module
    path.write_text(path.read_text().replace("0.1", "0.01"))
    assert "users.py" in misread(found.rate)
    path.write_text(path.read_text().replace("0.01", "0.1"))
    tf.function(lambda: found.rate()).get_concrete_function()
    path.write_text(path.read_text().replace("0.1", "0.01"))
    assert misread(found.rate) is None


def test_code_of_no_file_was_not_edited():
    held = {}
    exec("def rate():\n    return 0.1\n", held)
    assert not is_edited(held["rate"].__code__)
