"""Every name that rich prints comes out as it is."""

from __future__ import annotations

import pytest
from rich.table import Table

from experiments.report.console import literal_console
from experiments.report.progress import progress_bar, status
from experiments.report.spoc import show_spoc
from experiments.report.topology import show_topology
from placer.graph.topology import Device, Link, Topology

NAMES = ("mine.py:ok: 5 ops", ":smile:", "[red]x", "[/]", "[bold]b[/bold]", "\\[x]")


@pytest.fixture(autouse=True)
def wide(monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")


@pytest.mark.parametrize("name", NAMES)
def test_lines_and_tables_are_literal(capsys, name):
    console = literal_console()
    table = Table(name, title=name)
    table.add_row(name)
    console.print(table)
    console.print(name, style="dim", soft_wrap=True)
    assert capsys.readouterr().out.count(name) == 4


def test_what_does_not_fit_into_a_column_is_folded_and_not_cut(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "24")
    table = Table("mapping", "step")
    table.add_row("single on worker:0/gpu:1", "1234.56 ms*")
    literal_console().print(table)
    out = capsys.readouterr().out
    assert "…" not in out and all(digit in out for digit in "123456*")


@pytest.mark.parametrize("name", NAMES)
def test_progress_is_literal(capsys, monkeypatch, name):
    with progress_bar(1, quiet=False) as advance:
        advance(name)
    assert f"{name} (1 of 1)" in capsys.readouterr().err
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    with progress_bar(1, quiet=False) as advance:
        advance(name)
    with status(quiet=False) as say:
        say(name)
    assert capsys.readouterr().err.count(name) >= 2


@pytest.mark.parametrize("name", NAMES)
def test_devices_and_models_are_literal(capsys, name):
    devices = (Device(name, "cpu", hardware=name), Device("other", "cpu"))
    show_topology(Topology(devices, (Link(name, "other", 1e-4, 1e9),)))
    assert capsys.readouterr().out.count(name) >= 3
    known = ("ops", "hops", "parameters", "operations", "multiply_adds", "traffic_bytes", "span", "chain_s", "breadth")
    step = {**dict.fromkeys(known, 1), "uncounted": 0}
    show_spoc([{"model": name, "forward": None, "step": step, "reading": name, "missing": []}])
    assert capsys.readouterr().out.count(name) == 2
