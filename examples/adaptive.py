"""Adaptive re-placement: another job lands on a worker's core in the middle of the training, and goes away again.

    python examples/adaptive.py --steps 300

Prints Placer's journal as it is written: what the search found, when the load showed, which device slowed, what was
tried, and whether moving paid. The other job is a busy loop, pinned to the core of the second worker.
"""

from __future__ import annotations

import argparse
import logging
import os
import subprocess
import sys
import time
from statistics import median

import tensorflow as tf

import placer
from experiments import zoo


def other_job(core: int) -> subprocess.Popen[bytes]:
    """A busy loop on one core, with a session of its own: what another user's job looks like to the scheduler."""
    code = f"import os\nos.sched_setaffinity(0, {{{core}}})\nwhile os.getppid() == {os.getpid()}: pass"
    return subprocess.Popen([sys.executable, "-c", code], start_new_session=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="towers")
    parser.add_argument("--batch", type=int, default=None)
    parser.add_argument("--steps", type=int, default=300, help="before, with and after the other job, each")
    parser.add_argument("--search", type=int, default=2000, help="steps that the search may take at most")
    parser.add_argument("--budget", type=int, default=12, help="mappings measured at most")
    parser.add_argument("--dry-run", action="store_true", help="only say what would be done about the load")
    options = parser.parse_args()
    logging.basicConfig(format="%(message)s", stream=sys.stdout)
    logging.getLogger("placer").setLevel(logging.INFO)

    training = zoo.load(options.model, batch=options.batch)
    cores = sorted(os.sched_getaffinity(0))
    with placer.autoplace(
        tf.function(training.step), devices="workers:2", budget=options.budget, dry_run=options.dry_run,
        beat_untouched=False,
    ) as step:  # fmt: skip

        def train(steps: int, what: str) -> None:
            took_s = []
            for _ in range(steps):
                begin = time.perf_counter()
                loss = step(*training.example_inputs)
                took_s.append(time.perf_counter() - begin)
            last = took_s[-min(50, steps) :]
            print(f"--- {what}: {median(last) * 1e3:.1f} ms a step, loss {float(loss):.4f}")

        while step.phase != "steady" and step.steps < options.search:
            step(*training.example_inputs)
        train(options.steps, "alone")
        job = other_job(cores[len(cores) // 2])
        try:
            train(options.steps, "beside another job on worker:1")
        finally:
            job.kill()
            job.wait()
        train(options.steps, "alone again")
        print(step.report())


if __name__ == "__main__":
    main()
