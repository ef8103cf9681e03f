"""Memory limits that a user gives: sizes and names are read, or refused in one line, and devices get no more."""

from __future__ import annotations

import pytest

from placer.errors import BadInputError
from placer.graph.memory_limits import NO_LIMITS, MemoryLimits, size_bytes
from placer.graph.topology import Device, Topology

TOPOLOGY = Topology((Device("worker:0", "cpu", 1000), Device("worker:1", "cpu"), Device("worker:1/gpu:0", "gpu", 50)))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("10GiB", 10 * 2**30), ("800MiB", 800 * 2**20), ("2.5GB", 2_500_000_000), ("1.5 kib", 1536), ("7b", 7),
        ("1TB", 10**12), ("123", 123), (4096, 4096),
    ],
)  # fmt: skip
def test_a_size_is_a_number_of_bytes_with_or_without_a_unit(text, found):
    assert size_bytes(text, "max_memory") == found


@pytest.mark.parametrize("text", ["", "GiB", "10GiBs", "10 G", "1e9", "-1", "1,5GB", "nan", "٣GB", 2.5, True, None])
def test_what_is_no_size_is_refused(text):
    with pytest.raises(
        BadInputError, match=r"^here: .* is no size; write 10GiB, 800MiB, 2\.5GB or a number of bytes\.$"
    ):
        size_bytes(text, "here")


@pytest.mark.parametrize("text", ["0", "0GiB", "0.2", "0.0000001kB", 0, -5])
def test_a_size_below_one_byte_is_refused(text):
    with pytest.raises(BadInputError, match=r"^here: .* leaves no memory; give at least one byte\.$"):
        size_bytes(text, "here")


def test_memory_is_lowered_and_never_raised():
    limits = MemoryLimits.parsed(["worker:0=2kB", "worker:1 = 300", "worker:1/gpu:0=49"])
    assert [device.memory_bytes for device in limits.on(TOPOLOGY).devices] == [1000, 300, 49]
    assert NO_LIMITS.on(TOPOLOGY) is TOPOLOGY
    assert MemoryLimits.of(None) == NO_LIMITS


def test_a_cpus_share_is_a_guess_whose_place_a_limit_takes():
    limits = MemoryLimits.parsed(["worker:0=2kB", "worker:1/gpu:0=2kB"])
    before = [device.memory_bytes for device in TOPOLOGY.devices]
    after = [device.memory_bytes for device in limits.on(TOPOLOGY, shares=True).devices]
    assert after == [2000, before[1], before[2]] and TOPOLOGY.devices[2].kind == "gpu"


def test_both_ways_to_give_them_say_the_same():
    by_keyword = MemoryLimits.of({"worker:0": "1KiB", "worker:1": 5})
    assert by_keyword.by_device == MemoryLimits.parsed(["worker:0=1KiB", "worker:1=5"]).by_device


@pytest.mark.parametrize(
    ("texts", "says"),
    [
        (["800MiB"], "--max-memory '800MiB': give DEVICE=SIZE, such as worker:0=800MiB."),
        (["=800MiB"], "--max-memory '=800MiB': give DEVICE=SIZE, such as worker:0=800MiB."),
        (["a=1", "a=2"], "--max-memory names 'a' twice; give it one limit."),
        (["a=much"], "--max-memory 'a=much': 'much' is no size; write 10GiB, 800MiB, 2.5GB or a number of bytes."),
    ],
)
def test_options_that_cannot_be_are_refused(texts, says):
    with pytest.raises(BadInputError) as refused:
        MemoryLimits.parsed(texts)
    assert str(refused.value) == says


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (["worker:0"], "max_memory is a list; write it as {'worker:0': '800MiB'}."),
        ("worker:0=1", "max_memory is a str; write it as {'worker:0': '800MiB'}."),
        ({0: 5}, "max_memory has the key '0'; name devices, such as 'worker:0'."),
        ({"a": "x"}, "max_memory['a']: 'x' is no size; write 10GiB, 800MiB, 2.5GB or a number of bytes."),
    ],
)
def test_keywords_that_cannot_be_are_refused(given, says):
    with pytest.raises(BadInputError) as refused:
        MemoryLimits.of(given)
    assert str(refused.value) == says


def test_an_unknown_device_is_refused_with_those_that_there_are():
    with pytest.raises(BadInputError, match=r"^--max-memory: gpu:7 is no device here; the devices are worker:0, wo"):
        MemoryLimits.parsed(["worker:0=5", "gpu:7=5"]).on(TOPOLOGY)
