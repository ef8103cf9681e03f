"""The docstring of each package names what is in it, so that a newcomer finds the room without a guide."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

HOME = Path(__file__).parents[2]
FLOORS = ("placer", "surrogate", "search")  # themselves described in docs/architecture.md
ROOMS = ("experiments/campaign", "experiments/cli", "experiments/jobs")


def rooms() -> Iterator[Path]:
    """The folders of packages that have more than one module."""
    inits = [path for floor in FLOORS for path in (HOME / floor).glob("*/**/__init__.py")]
    inits += [HOME / room / "__init__.py" for room in ROOMS]
    yield from sorted(path.parent for path in inits if len(names_in(path.parent)) > 1)


def names_in(folder: Path) -> list[str]:
    """The modules and packages directly in `folder` that are not private."""
    modules = [path.stem for path in folder.glob("*.py")]
    packages = [path.parent.name for path in folder.glob("*/__init__.py")]
    return sorted(name for name in modules + packages if not name.startswith("_"))


@pytest.mark.parametrize("room", list(rooms()), ids=lambda room: str(room.relative_to(HOME)))
def test_a_package_names_its_modules(room: Path) -> None:
    said = ast.get_docstring(ast.parse((room / "__init__.py").read_text())) or ""
    assert [name for name in names_in(room) if not re.search(rf"\b{name}\b", said)] == []
