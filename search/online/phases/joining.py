"""The phase from the first call until the devices are joined: the step runs untouched, and is captured meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from placer import phase_names
from placer.errors import BadInputError
from placer.graph.defaults import HEADROOM
from placer.graph.held_memory import may_lack_memory
from placer.train.steps.modes import UNTOUCHED
from search.online.interfaces import LiveStepLike, Steps
from search.online.narrator import Narrator
from search.online.trials.trials import Trials

if TYPE_CHECKING:
    from placer.graph.op_graph import OpGraph
    from placer.graph.topology import Topology


class Joining:
    """Captures a live step and joins its devices."""

    def __init__(
        self,
        live: LiveStepLike,
        trials: Trials,
        narrator: Narrator,
        look_for_lost: Callable[[], None],
        joined: Callable[[Topology], None],
    ) -> None:
        """look_for_lost: called while a device is missing. joined: called with all devices, once they are there."""
        self.live, self.trials, self._narrator = live, trials, narrator
        self._look_for_lost, self._joined = look_for_lost, joined

    def run(self) -> Steps[bool]:
        """Run untouched steps until the devices are joined. Returns whether there is something to place."""
        yield UNTOUCHED
        if self.live.left_alone:
            return False
        ready = self.live.background(self.live.session.prepare)
        yield UNTOUCHED
        yield UNTOUCHED
        while not self.live.is_ready:
            yield UNTOUCHED
        if self.live.left_alone:
            return False
        self._narrator.now(phase_names.CAPTURING)
        graph = yield from self.trials.background(self.live.capture)
        self._narrator.now(phase_names.STARTING_DEVICES)
        yield from self.trials.background(self.live.session.prepare, ready)
        yield from self.until_whole()
        topology = self.live.join()
        self._joined(topology)
        if len(topology) < 2:
            self.live.leave_alone(f"{topology.names[0]} is the only device here, so that there is nothing to place")
            return False
        if may_lack_memory(graph, topology, HEADROOM):
            why = yield from self.trials.meanwhile(self.live.background(lambda: _too_large(graph, topology)))
            if why:
                self.live.leave_alone(why)
                return False
        return True

    def until_whole(self) -> Steps[None]:
        """Run untouched steps while a device is missing: a step that joined now would try to measure that device."""
        while self.live.session.missing:
            yield UNTOUCHED
            self._look_for_lost()


def _too_large(graph: OpGraph, topology: Topology) -> str:
    """Return why no mapping has room for the variables of the step; "" if one may have."""
    from search.problem.memory_fit import refuse_too_large  # slow to import

    try:
        refuse_too_large(graph, topology, HEADROOM)
    except BadInputError as error:
        return str(error).rstrip(".")
    return ""
