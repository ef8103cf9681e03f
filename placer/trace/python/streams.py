"""Random streams of the whole program, from which a step draws without naming them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from placer import tf_internals
from placer.trace.random_streams import draws_within


@dataclass(frozen=True, eq=False)
class GlobalStreams:
    """The streams of the program from which traces of a plain step draw. A trace keeps its streams even if the program
    replaces them later; an eager call takes the current ones.
    """

    has_no_seed: bool = False  # whether ops draw without a seed
    states: Mapping[str, Any] = field(default_factory=dict)  # the program's name for a generator -> its variable

    def with_trace(self, concrete: Any) -> GlobalStreams:
        """These streams, and those from which one more trace draws. The trace must have no seeded ops."""
        captured = {id(outer) for outer, _ in concrete.graph.captures}
        states = {
            name: state
            for name, state in tf_internals.settings.global_generators().items()
            if id(tf_internals.variables.handle_of(state)) in captured
        }
        has_no_seed = self.has_no_seed or bool(draws_within(concrete.graph.as_graph_def()))
        return GlobalStreams(has_no_seed, {**states, **self.states})

    def replaced(self) -> str | None:
        """In words, which stream the program has replaced; None if all are as they were."""
        if self.has_no_seed and tf_internals.settings.global_seed() is not None:
            return "it draws random numbers without a seed, and the program has called tf.random.set_seed since"
        if not self.states:
            return None
        now = tf_internals.settings.global_generators()
        name = next((name for name, state in self.states.items() if now.get(name) is not state), None)
        return name and f"it draws from {name}, in whose place the program has put another one"
