"""A lease of nodes: a process that has Ray start a worker on each node, and holds them until its stdin closes.

Run as `python -m placer.devices.ray.lease`; `ray_workers` starts it. Ray ends a process that loses its cluster, and
replaces a process's signal handlers, so the training's process does not use Ray (docs/decisions/021-ray-workers.md).

The lease prints one JSON object on a line: {"workers"}, or {"error", "exit_code"}. Then it reads lines "restart TASK",
and answers each with {"back": whether that worker serves again}.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import Any

from placer.devices.host.parent import when_parent_ends
from placer.devices.ray.connection import connect
from placer.devices.ray.node_worker import NodeWorker
from placer.devices.ray.nodes import Node, PlacementGroup, first_core, nodes_of, reserve
from placer.devices.ray.spec import RaySpec
from placer.devices.workers.workers import START_TIMEOUT_S
from placer.errors import PlacerError, one_line

MODULE = "placer.devices.ray.lease"
END_S = 5.0  # for a node to end its worker


class RayGroups:
    """Placement groups of Ray, each bundle on a node of its own."""

    def make(self, bundles: Sequence[Mapping[str, float]]) -> PlacementGroup:
        """See `PlacementGroups.make`."""
        from ray.util import placement_group

        group: PlacementGroup = placement_group([dict(bundle) for bundle in bundles], strategy="STRICT_SPREAD")
        return group

    def nodes_of(self, group: PlacementGroup) -> list[str]:
        """See `PlacementGroups.nodes_of`."""
        from ray.util import placement_group_table

        by_bundle = placement_group_table(group)["bundles_to_node_id"]
        return [by_bundle[bundle] for bundle in sorted(by_bundle)]

    def remove(self, group: PlacementGroup) -> None:
        """See `PlacementGroups.remove`."""
        from ray.util import remove_placement_group

        remove_placement_group(group)


@dataclass(frozen=True)
class Lease:
    """The workers of reserved nodes, in task order. ray: the module."""

    ray: Any
    actors: tuple[Any, ...]
    said: tuple[Mapping[str, Any], ...]  # what each worker reported when it was ready

    @classmethod
    def taken(cls, spec: RaySpec, stack: ExitStack) -> Lease:
        """Reserve nodes and start their workers; both end with `stack`. Raises PlacerError."""
        where = stack.enter_context(connect(spec.address)).address
        import ray

        nodes, groups = nodes_of(ray.nodes()), RayGroups()
        group, mine = reserve(spec, nodes, groups, where)
        stack.callback(groups.remove, group)
        # Ray numbers nodes of one size arbitrarily, and a resumed search must find them in the same order.
        numbered = sorted(enumerate(mine), key=lambda entry: (*(-size for size in entry[1].size), entry[1].ip))
        actors = tuple(_actor(ray, group, bundle, node, nodes) for bundle, node in numbered)
        for actor in actors:
            stack.callback(_end, ray, actor)
        try:
            said = ray.get([actor.serve.remote() for actor in actors], timeout=START_TIMEOUT_S + END_S)
        except ray.exceptions.RayError as error:
            raise PlacerError(f"{spec}: a worker does not start at {where}: {_reason(error)}") from error
        failed = next((facts["error"] for facts in said if "error" in facts), None)
        if failed:
            raise PlacerError(f"{spec}: a worker does not start at {where}: {failed}")
        return cls(ray, actors, tuple(said))

    def restart(self, task: int) -> bool:
        """Restart a worker at its port unless it serves; False if it or its node does not come back."""
        actor, port = self.actors[task], int(self.said[task]["address"].rpartition(":")[2])
        try:
            if self.ray.get(actor.serves.remote(), timeout=END_S):
                return True
            return "error" not in self.ray.get(actor.serve.remote(port), timeout=START_TIMEOUT_S)
        except self.ray.exceptions.RayError:
            return False


def main() -> None:
    """Hold the lease until stdin closes."""
    parser = argparse.ArgumentParser(prog=MODULE, description=__doc__)
    parser.add_argument("spec", help="ray:N or ray:N@ADDRESS")
    spec = parser.parse_args().spec
    out = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # whatever Ray prints goes to stderr
    is_ready = threading.Event()
    requests = _requests(is_ready)
    with ExitStack() as stack:
        try:
            lease = Lease.taken(RaySpec.parsed(spec), stack)
        except PlacerError as error:
            print(json.dumps({"error": one_line(str(error)), "exit_code": error.exit_code}), file=out)
            return
        except Exception as error:  # an error of Ray; a traceback from this process would not be seen
            why = one_line(f"{spec}: Ray does not provide the nodes: {type(error).__name__}: {_reason(error)}")
            print(json.dumps({"error": why, "exit_code": PlacerError.exit_code}), file=out)
            return
        is_ready.set()
        print(json.dumps({"workers": lease.said}), file=out)
        while (request := requests.get()) is not None:
            print(json.dumps({"back": lease.restart(int(request.removeprefix("restart ")))}), file=out)


def _requests(is_ready: threading.Event) -> queue.SimpleQueue[str | None]:
    """A queue of the lines of stdin, then None when stdin or the parent process ends; a process that the parent forked
    may keep the pipe open. If the end comes before the lease is ready, this process ends at once, and Ray ends what was
    begun.
    """
    requests: queue.SimpleQueue[str | None] = queue.SimpleQueue()

    def end() -> None:
        if not is_ready.is_set():
            os._exit(1)
        requests.put(None)

    def read() -> None:
        for line in sys.stdin:
            requests.put(line)
        end()

    threading.Thread(target=read, daemon=True, name="placer-lease").start()
    when_parent_ends(end)
    return requests


def _actor(ray: Any, group: PlacementGroup, bundle: int, node: Node, nodes: Sequence[Node]) -> Any:
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

    strategy = PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=bundle)
    worker = ray.remote(NodeWorker).options(num_cpus=node.cpus, num_gpus=node.gpus, scheduling_strategy=strategy)
    return worker.remote(node.ip, first_core(node, nodes), node.cpus, node.gpus)


def _end(ray: Any, actor: Any) -> None:
    with suppress(Exception):  # the worker has ended with its node
        ray.get(actor.end.remote(), timeout=END_S)
    with suppress(Exception):
        ray.kill(actor)


def _reason(error: Exception) -> str:
    """The last line of an error of Ray, or of what ran on a node, with advice if a module is missing there."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    said = lines[-1] if lines else type(error).__name__
    if "No module named" in str(error):
        return f"{said}; install placer, with its TensorFlow, on all nodes."
    return said


if __name__ == "__main__":
    main()
