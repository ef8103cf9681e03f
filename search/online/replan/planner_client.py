"""A planner: an online plan in a process of its own, at a low priority, so that training keeps its cores."""

from __future__ import annotations

import os
import pickle
import queue
import subprocess
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import IO, Any, TypeVar

from placer.devices.host.child_python import module_command, module_paths
from placer.errors import PlacerError, one_line
from placer.graph.op_graph import OpGraph
from placer.graph.topology import Topology
from placer.result import Result
from search.online.replan.planner_server import BEGIN
from search.online.replan.proposal import OpDevices, PlanSettings, Proposal

T = TypeVar("T")

# One thread for each library: a planner is in no hurry, and more threads would disturb more cores.
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")
GOODBYE_S = 5.0


class Planner:
    """The methods of Replanner, each answered by a Future, in the order of the calls.

    A Future holds a PlacerError if its call failed or the process has ended. Only `close` waits for the process, and no
    method raises for what happens in it. The process ends with `close()`, and when this process ends.
    """

    def __init__(self, graph: OpGraph, topology: Topology, settings: PlanSettings | None = None) -> None:
        self._begin = (graph, topology, settings)
        self._calls: queue.SimpleQueue[_Call | None] = queue.SimpleQueue()
        self._process: subprocess.Popen[bytes] | None = None
        self._said: IO[bytes] | None = None
        self._thread: threading.Thread | None = None
        self._closed = False
        self._gone = False

    def start(self) -> Future[None]:
        """Start the process. The Future is done when the plan is made; it holds a PlacerError if that fails.

        Raises PlacerError at a second start.
        """
        if self._process is not None or self._closed:
            raise PlacerError("a planner starts once; make another.")
        self._said = os.fdopen(os.memfd_create("placer_said"), "w+b")  # an unread pipe would fill up
        try:
            self._process = _started(self._said)
        except OSError as error:
            self.close()
            begun = _Call(BEGIN, ())
            begun.fail(f"the planner's process could not be started ({error.strerror}); train on without a search.")
            return begun.future
        self._thread = threading.Thread(target=self._serve, name="placer-planner", daemon=True)
        self._thread.start()
        return self._call(BEGIN, *self._begin)

    def close(self) -> None:
        """End the process, even in the middle of a call; calls without an answer fail. Harmless when called twice."""
        self._closed = True
        if self._process is not None and self._thread is not None:
            self._process.kill()
            self._calls.put(None)
            self._thread.join(GOODBYE_S)
            self._process.wait()
            _close(self._process.stdin)
            _close(self._process.stdout)
        _close(self._said)

    @property
    def pid(self) -> int | None:
        """The id of the process; None before `start`."""
        return None if self._process is None else self._process.pid

    def singles(self) -> Future[list[Proposal]]:
        return self._call("singles")

    def tell(self, measured: Sequence[tuple[OpDevices, Result]]) -> Future[None]:
        return self._call("tell", list(measured))

    def propose(self, count: int, seconds: float | None = None) -> Future[list[Proposal]]:
        return self._call("propose", count, seconds)

    def ended(self) -> Future[str | None]:
        """Ask why the last `propose` gave fewer mappings than it was asked for; None if it did not."""
        return self._call("ended")

    def predict(self, devices: OpDevices) -> Future[float]:
        return self._call("predict", devices)

    def slowed(self, device_factor: Mapping[str, float], link_factor: Mapping[tuple[str, str], float]) -> Future[None]:
        return self._call("slowed", dict(device_factor), dict(link_factor))

    def only(self, names: Sequence[str]) -> Future[None]:
        return self._call("only", tuple(names))

    def _call(self, method: str, *arguments: Any) -> Future[Any]:
        call = _Call(method, arguments)
        if self._closed or self._thread is None:
            what = "was closed" if self._closed else "was not started"
            call.fail(f"the planner {what}; nothing can be asked of it.")
        else:
            self._calls.put(call)
            if self._gone:
                self._refuse_waiting()
        return call.future

    def _serve(self) -> None:
        """Pass calls on and answers back, one by one, until the planner is closed or its process has ended."""
        assert self._process is not None
        while (call := self._calls.get()) is not None:
            if not call.future.set_running_or_notify_cancel():
                continue
            try:
                call.pass_on(self._process)
            except (OSError, EOFError, pickle.UnpicklingError, ValueError):
                call.fail(self._why_gone())
                break
            except Exception as error:  # what cannot be pickled is the caller's mistake; the process goes on
                call.fail(one_line(f"planning failed in {call.method}: {type(error).__name__}: {error}"))
        self._gone = True  # before waiting calls are refused, so that a call that comes later refuses itself
        self._refuse_waiting()

    def _refuse_waiting(self) -> None:
        """Fail the calls that will not be answered any more."""
        while True:
            try:
                call = self._calls.get_nowait()
            except queue.Empty:
                return
            if call is not None and call.future.set_running_or_notify_cancel():
                call.fail(self._why_gone())

    def _why_gone(self) -> str:
        if self._closed:
            return "the planner was closed; nothing can be asked of it."
        assert self._process is not None
        self._process.kill()
        code = self._process.wait()
        return f"the planner's process ended with code {code}{self._last_line()}; start another to search on."

    def _last_line(self) -> str:
        """Return the last line that the process wrote to stderr, in parentheses; "" if there is none."""
        if self._said is None or self._said.closed:
            return ""
        self._said.seek(0)
        lines = self._said.read().decode(errors="replace").split("\n")
        said = [line.strip() for line in lines if line.strip()]
        return f" ({one_line(said[-1])})" if said else ""


class _Call:
    """One call, and the Future of its answer."""

    def __init__(self, method: str, arguments: tuple[Any, ...]) -> None:
        self.method, self.arguments = method, arguments
        self.future: Future[Any] = Future()

    def fail(self, line: str, kind: type[PlacerError] = PlacerError) -> None:
        self.future.set_exception(kind(line))

    def pass_on(self, process: subprocess.Popen[bytes]) -> None:
        """Send the call, wait, and take the answer. Raises OSError or EOFError if the process has ended."""
        assert process.stdin is not None and process.stdout is not None
        sent = pickle.dumps((self.method, self.arguments), protocol=pickle.HIGHEST_PROTOCOL)
        process.stdin.write(sent)
        process.stdin.flush()
        worked, value = pickle.load(process.stdout)
        if worked:
            self.future.set_result(value)
        else:
            kind, line = value
            self.fail(line, kind)


def _started(said: IO[bytes]) -> subprocess.Popen[bytes]:
    """Start the process. It finds modules where this process does, and Ctrl-C does not reach it."""
    return subprocess.Popen(
        module_command("search.online.replan.planner_server"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=said,
        env={**os.environ, **ONE_THREAD, **module_paths()},
        start_new_session=True,
    )


def _close(pipe: IO[bytes] | None) -> None:
    try:
        if pipe is not None:
            pipe.close()
    except OSError:  # what was still to be written is lost
        pass
