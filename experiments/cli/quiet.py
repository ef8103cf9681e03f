"""Hides from the terminal what TensorFlow logs while it is imported."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

START_UP = (b"WARNING: All log messages before absl::InitializeLog()", b"I0000 ")


def import_quietly() -> None:
    """From now on, let the import of TensorFlow log only problems. TF_CPP_MIN_LOG_LEVEL does not silence the import."""
    if "tensorflow" not in sys.modules:
        sys.meta_path.insert(0, _Finder())


class _Finder(MetaPathFinder):
    """Finds TensorFlow once, as Python does, and runs its import with stderr filtered."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != "tensorflow":
            return None
        sys.meta_path.remove(self)
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            run: Any = spec.loader.exec_module

            def quietly(module: ModuleType) -> None:
                with _filtered():
                    run(module)

            spec.loader.exec_module = quietly  # type: ignore[method-assign]
        return spec


@contextmanager
def _filtered() -> Iterator[None]:
    """Hold back what the block writes to file descriptor 2, and write it after the block without START_UP lines."""
    sys.stderr.flush()
    terminal = os.dup(2)
    with os.fdopen(os.memfd_create("placer_said"), "w+b") as said:
        os.dup2(said.fileno(), 2)
        try:
            yield
        finally:
            sys.stderr.flush()
            os.dup2(terminal, 2)
            os.close(terminal)
            said.seek(0)
            for line in said:
                if not line.startswith(START_UP):
                    os.write(2, line)
