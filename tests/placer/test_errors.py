"""Work of which each part is tried, whatever becomes of the others."""

import threading

import pytest

from placer.errors import PlacerError, first_twice, tried, try_each, warn


def fails(error):
    def way():
        raise error

    return way


def test_each_is_tried_and_what_failed_is_told(capsys):
    done = []
    with pytest.raises(PlacerError, match="second"):
        try_each(fails(PlacerError("first\nof all")), lambda: done.append(1), fails(PlacerError("second")))
    assert done == [1]
    assert capsys.readouterr().err == "placer: first of all\n"


def test_nothing_is_raised_where_nothing_failed(capsys):
    try_each(lambda: 1)
    assert tried(lambda: 1) == []
    assert capsys.readouterr().err == ""


def test_a_fault_in_the_program_keeps_its_traceback(capsys):
    with pytest.raises(ZeroDivisionError):
        try_each(fails(ZeroDivisionError()), fails(PlacerError("told")))
    assert capsys.readouterr().err == "placer: told\n"


def test_the_first_that_repeats_is_found():
    assert first_twice(["a", "b", "b", "a"]) == "b" and first_twice([0, 1, 0]) == 0
    assert first_twice(["a", "b"]) is None and first_twice([]) is None


def module(name, text, **has):
    """What a module of this name has, run from its text."""
    has |= {"__name__": name}
    exec(compile(text, f"{name}.py", "exec"), has)
    return has


def test_a_warning_names_the_programs_line_whatever_lies_between():
    ours = module("placer.train.step", "def run(): warn('left alone.')", warn=warn)
    keras = module("keras.src.trainer", "def fit(): run()", run=ours["run"])
    program = module("__main__", "\ndef train(): fit()", fit=keras["fit"])
    with pytest.warns(UserWarning) as warned:
        program["train"]()
        keras["fit"]()
    assert [str(warning.message) for warning in warned] == ["placer: left alone."] * 2
    assert [(warning.filename, warning.lineno) for warning in warned[:1]] == [("__main__.py", 2)]
    assert warned[1].filename == __file__


def test_a_warning_of_a_thread_comes_as_well():
    with pytest.warns(UserWarning, match="placer: gone."):
        thread = threading.Thread(target=warn, args=["gone."])
        thread.start()
        thread.join()
