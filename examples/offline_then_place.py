"""Search first, train later: a mapping is found once by `placer search`, and every training starts on it.

    python examples/offline_then_place.py --model towers --out out/towers --steps 100

MODEL is a network of the zoo, or `file.py:function` as for `placer search`. Where out/towers/mapping.json is there
already, the search is left out.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

import placer
from experiments import zoo


def search(options: argparse.Namespace) -> None:
    """What you would type: placer search towers --workers 2 --out out/towers"""
    command = [sys.executable, "-m", "placer", "search", options.model, "--workers", str(options.workers)]
    command += ["--measurements", str(options.measurements), "--out", str(options.out)]
    command += ["--batch", str(options.batch)] if options.batch is not None else []
    subprocess.run(command, check=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="towers")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--measurements", type=int, default=12)
    parser.add_argument("--batch", type=int, default=None)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--out", type=Path, default=Path("out/offline"))
    options = parser.parse_args()

    mapping = options.out / "mapping.json"
    if not mapping.exists():
        search(options)

    training = zoo.load(options.model, batch=options.batch)
    took_s = []
    with placer.place(training.step, mapping, devices=f"workers:{options.workers}") as step:
        for _ in range(options.steps):
            begin = time.perf_counter()
            loss = step(*training.example_inputs)
            took_s.append(time.perf_counter() - begin)
        print(step.report())
    print(f"loss {float(loss):.4f}; the last half of {options.steps} steps took "
          f"{median(took_s[len(took_s) // 2 :]) * 1e3:.1f} ms each.")  # fmt: skip


if __name__ == "__main__":
    main()
