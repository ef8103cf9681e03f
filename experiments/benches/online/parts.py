"""The parts of the bench `online` by name; each runs in a process of its own."""

from __future__ import annotations

from typing import Any

from experiments.benches.bench import Facts


def run_part(name: str, settings: dict[str, Any]) -> Facts:
    """What the part finds in this process, which loads TensorFlow for it. settings: the part's arguments."""
    from experiments.benches.online import kills, oracle, overhead, recovery, steady

    parts = {
        "overhead": overhead.overhead_facts,
        "oracle": oracle.oracle_facts,
        "recovery": recovery.recovery_facts,
        "steady": steady.steady_facts,
        "kills": kills.kill_facts,
    }
    return parts[name](**settings)
