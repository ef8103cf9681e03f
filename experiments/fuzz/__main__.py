"""`python -m experiments.fuzz NAME COUNT` uses COUNT hostile inputs of one kind, and prints the result as one JSON
object. Without arguments, it prints the share that each kind has of all inputs.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory

from experiments.fuzz.judge import judged
from experiments.fuzz.targets import TARGETS


def main() -> None:
    """Read the name of a kind, the number of inputs, and maybe a seed, which is the name by default."""
    if len(sys.argv) == 1:
        print(json.dumps({name: target.share for name, target in TARGETS.items()}))
        return
    name, count, *seed = sys.argv[1:]
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    with TemporaryDirectory(prefix="placer-fuzz-") as folder:
        found = judged(TARGETS[name], int(count), seed[0] if seed else name, Path(folder))
        os.chdir("/")  # `folder` may have become the working folder, and is removed next
    print(json.dumps(asdict(found)))


if __name__ == "__main__":
    main()
