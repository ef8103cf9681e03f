"""Every kind of hostile input, by its name."""

from __future__ import annotations

from experiments.fuzz.command_lines import COMMAND_LINES
from experiments.fuzz.files import FILES
from experiments.fuzz.stores import STORES

TARGETS = {**FILES, **STORES, **COMMAND_LINES}
