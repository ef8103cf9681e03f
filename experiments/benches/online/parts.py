"""The parts of the bench `online` by name; each runs in a process of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from experiments.benches.bench import Facts


def run_part(name: str, settings: Facts) -> Facts:
    """What the part finds, in this process, which loads TensorFlow for it."""
    from experiments.benches.online import kills, oracle, overhead, recovery, steady

    parts: dict[str, tuple[Callable[[Any], Facts], type[Any]]] = {
        "overhead": (overhead.overhead_facts, overhead.OverheadSettings),
        "oracle": (oracle.oracle_facts, oracle.OracleSettings),
        "recovery": (recovery.recovery_facts, recovery.RecoverySettings),
        "steady": (steady.steady_facts, steady.SteadySettings),
        "kills": (kills.kill_facts, kills.KillSettings),
    }
    measure, made = parts[name]
    return measure(made(**settings))
