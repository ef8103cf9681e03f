"""Work of which each part is tried, whatever becomes of the others."""

import pytest

from placer.errors import PlacerError, first_twice, tried, try_each


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
