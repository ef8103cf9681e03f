"""The locks in requirements/ name every package that pyproject.toml asks for, with a hash, and no place."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

HOME = Path(__file__).parents[2]
EXTRAS = ("cpu", "gpu")
PIN = re.compile(r"(?P<name>[a-z0-9-]+)==(?P<version>[0-9][0-9a-z.]*)(?: ; [a-z0-9_ '=!<>.]+)?", re.IGNORECASE)
HASH = re.compile(r"    --hash=sha256:[0-9a-f]{64}")

Pins = dict[str, tuple[str, int]]
"""Name -> version, and how many hashes it has."""


def asked(extra: str) -> list[Requirement]:
    """What `make setup EXTRA=...` is to install, what builds Placer included."""
    document = tomllib.loads((HOME / "pyproject.toml").read_text())
    project, extras = document["project"], document["project"]["optional-dependencies"]
    lines = [*project["dependencies"], *extras[extra], *extras["dev"], *document["build-system"]["requires"]]
    return [Requirement(line) for line in lines]


def pins_of(lock: str) -> tuple[Pins, list[str]]:
    """The pins of a lock, and its lines that are neither a comment nor a pin nor a hash."""
    pins: Pins = {}
    odd, last = [], ""
    for line in lock.splitlines():
        bare = line.removesuffix(" \\")
        if (pin := PIN.fullmatch(bare)) is not None:
            last = pin["name"]
            pins[last] = (pin["version"], 0)
        elif HASH.fullmatch(bare) and last:
            version, hashes = pins[last]
            pins[last] = (version, hashes + 1)
        elif not line.startswith("#"):
            odd.append(line)
    return pins, odd


def faults(lock: str, requirements: list[Requirement]) -> list[str]:
    """What is wrong with a lock, a line each."""
    pins, odd = pins_of(lock)
    found = [f"not a pin: {line}" for line in odd]
    found += [f"names a place: {line}" for line in lock.splitlines() if "://" in line or "/" in line]
    found += [f"{name} has no hash" for name, (_, hashes) in pins.items() if not hashes]
    for requirement in requirements:
        version, _ = pins.get(canonicalize_name(requirement.name), ("", 0))
        if not version or not requirement.specifier.contains(version):
            found.append(f"{requirement} is not met by {version or 'anything'}")
    return found


def read(extra: str) -> str:
    return (HOME / "requirements" / f"{extra}.txt").read_text()


@pytest.mark.parametrize("extra", EXTRAS)
def test_a_lock_has_all_that_pyproject_asks_for(extra: str) -> None:
    assert faults(read(extra), asked(extra)) == [], "make lock"


def test_both_locks_have_the_same_versions() -> None:
    cpu, gpu = (pins_of(read(extra))[0] for extra in EXTRAS)
    assert [name for name in cpu.keys() & gpu.keys() if cpu[name] != gpu[name]] == []
    assert cpu["tensorflow-cpu"][0] == gpu["tensorflow"][0]


def test_the_makefile_installs_nothing_else() -> None:
    makefile = (HOME / "Makefile").read_text()
    assert "\nHASHED := --require-hashes --only-binary :all:\n" in makefile
    lines = [line for line in makefile.splitlines() if "$(PIP)" in line or "uv pip install" in line]
    uv, by_uv, by_pip, placer, for_locks, dry = lines
    assert "$(HASHED) -r requirements/uv.txt" in uv
    assert "$(HASHED) -r $(LOCK)" in by_uv and "$(PIP) $(HASHED) -r $(LOCK)" in by_pip
    assert "--no-index --no-deps --no-build-isolation" in placer
    assert "'$(UV)'" in for_locks and "--dry-run" in dry


def test_uv_is_that_which_makes_the_locks() -> None:
    makefile = (HOME / "Makefile").read_text()
    uv = re.search(r"^UV := (\S+?)#", makefile, re.MULTILINE)
    assert uv and faults(read("uv"), [Requirement(uv[1])]) == [], "make lock"


A_HASH = f"    --hash=sha256:{'0' * 64}"
GOOD = f"# made\nnumpy==2.4.6 \\\n{A_HASH} \\\n{A_HASH}\ntomli==2.0 ; python_full_version < '3.12' \\\n{A_HASH}\n"


@pytest.mark.parametrize(
    ("lock", "fault"),
    [
        (GOOD, None),
        (GOOD.replace("2.4.6", "1.26.4"), "numpy>=2.0 is not met by 1.26.4"),
        (GOOD.replace("numpy", "numbat"), "numpy>=2.0 is not met by anything"),
        ("numpy==2.4.6\n", "numpy has no hash"),
        ("numpy>=2.4.6\n", "not a pin"),
        (f"--index-url https://example.org/simple\n{GOOD}", "names a place"),
        (f"# uv pip compile -o /home/me/cpu.txt\n{GOOD}", "names a place"),
        (f"{GOOD}other @ https://example.org/other.whl \\\n{A_HASH}\n", "not a pin"),
        (GOOD.replace("0" * 64, "0" * 63), "not a pin"),
    ],
)
def test_a_fault_in_a_lock_is_found(lock: str, fault: str | None) -> None:
    found = faults(lock, [Requirement("numpy>=2.0")])
    assert found == [] if fault is None else any(line.startswith(fault) for line in found), found
