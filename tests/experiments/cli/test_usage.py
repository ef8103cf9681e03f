"""A command line that does not parse is refused like all bad input: one line, and exit code 2."""

from __future__ import annotations

import sys

import pytest

from experiments.cli import app

REFUSED = [
    ("search mnist_softmax --wokers 2", "no such option: --wokers", "see placer search --help."),
    ("serach towers", "no such command 'serach'", "see placer --help."),
    ("search", "missing argument 'model'", "see placer search --help."),
    ("search towers --workers two", "--workers", "see placer search --help."),
    ("search towers --workers", "--workers", "see placer --help."),
    ("plan a.json b.json c.json", "c.json", "see placer plan --help."),
    ("campaign rum x.yaml", "no such command 'rum'", "see placer campaign --help."),
    ("campaign run", "missing argument", "see placer campaign run --help."),
    ("scale fit --epochs x", "--epochs", "see placer scale fit --help."),
    ("bench main-job --measurements 1.5", "--measurements", "see placer bench --help."),
]


@pytest.fixture
def run(monkeypatch, capsys):
    def run(line):
        monkeypatch.setattr(sys, "argv", ["placer", *line.split()])
        monkeypatch.setattr(sys.modules["__main__"], "__package__", None)  # pytest's under `python -m pytest`
        with pytest.raises(SystemExit) as end:
            app.main()
        return (end.value.code, *capsys.readouterr())

    return run


@pytest.mark.parametrize(("line", "says", "next_step"), REFUSED)
def test_a_command_line_that_does_not_parse_is_one_line(run, line, says, next_step):
    code, out, err = run(line)
    assert (code, out) == (2, "")
    assert err.startswith("placer: ") and err.count("\n") == 1
    assert says in err.lower() and err.lower().endswith(f"{next_step}\n")


@pytest.mark.parametrize("line", ["", "campaign", "scale"])
def test_without_a_command_there_is_help(run, line):
    code, out, err = run(line)
    assert code == 2 and "Usage: " in out + err and "--help" in out + err


@pytest.mark.parametrize(("line", "says"), [("--version", "placer "), ("search --help", "Example: ")])
def test_what_ends_early_ends_well(run, line, says):
    code, out, err = run(line)
    assert (code, err) == (0, "") and says in out
