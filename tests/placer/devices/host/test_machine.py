"""Results are kept under a name that changes with what decides how long steps take."""

from __future__ import annotations

import os

import pytest

from placer.devices.host import cores, machine
from placer.devices.host.machine import MACHINE, ONEDNN, cores_of_cpu, cpu_model, machine_name, timed_on


def test_results_of_a_gpu_are_kept_apart() -> None:
    assert machine_name("H200") == f"{machine_name()} H200" != machine_name()


def test_a_container_may_be_called_what_it_was_called_before(monkeypatch: pytest.MonkeyPatch) -> None:
    names = []
    for node in ("3f2a", "9bc1"):
        monkeypatch.setattr(machine.platform, "node", lambda node=node: node)
        names.append(machine_name())
    assert names[0] != names[1]
    monkeypatch.setenv(MACHINE, "3f2a")
    assert machine_name() == names[0]


def test_times_of_ops_are_kept_apart_by_tensorflows_release_and_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = {timed_on("H200")}
    monkeypatch.setattr(machine, "installed", lambda: "2.20.1")
    keys.add(timed_on("H200"))
    monkeypatch.setenv(ONEDNN, "0")
    keys.add(timed_on("H200"))
    assert len(keys) == 3 and all(key.startswith(machine_name("H200")) for key in keys)


@pytest.mark.parametrize(
    ("text", "model"),
    [
        ("processor\t: 0\nmodel name\t: Some CPU: 9 @ 2 GHz\nmodel name\t: Other\n", "Some CPU: 9 @ 2 GHz"),
        ("processor\t: 0\nCPU part\t: 0xd0c\n", "of its own kind"),
        (None, "of its own kind"),
    ],
)
def test_a_processor_is_called_as_linux_calls_it(monkeypatch, tmp_path, text, model):
    monkeypatch.setattr(machine, "CPUINFO", tmp_path / "cpuinfo")
    monkeypatch.setattr(machine.platform, "processor", lambda: "of its own kind")
    if text is not None:
        machine.CPUINFO.write_text(text)
    cpu_model.cache_clear()
    try:
        assert (cores_of_cpu(1), cores_of_cpu(2)) == (f"1 core of {model}", f"2 cores of {model}")
    finally:
        cpu_model.cache_clear()


def test_results_of_fewer_cores_are_kept_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    names = set()
    for usable in ([0, 1, 2, 3], [0, 1]):
        monkeypatch.setattr(machine, "usable_cores", lambda usable=usable: usable)
        names.add(machine_name())
    assert len(names) == 2


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="has to take one of several cores away")
def test_a_process_that_may_run_on_one_core_has_a_name_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cores, "known_quota", lambda: None)  # which may leave one core anyway
    before, allowed = machine_name(), os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(allowed)})
        assert machine_name() != before
    finally:
        os.sched_setaffinity(0, allowed)
    assert machine_name() == before
