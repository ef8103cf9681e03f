"""Hostile files and stores that a coverage-guided fuzzer makes (Atheris, which is libFuzzer for Python).

It keeps the inputs that reach new branches of our own readers and changes these further, while the seeded generator
starts from a valid file each time. For both, `judge` says what is mishandled.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from experiments.fuzz.judge import Tally, on_time
from placer.errors import BadInputError, PlacerError, listed, short, tell

if TYPE_CHECKING:
    from experiments.fuzz.guided_targets import Guided, Kind

HOME = Path(__file__).parents[2]
PACKAGES = ("placer", "surrogate", "experiments")
# Modules that read files and stores, which Atheris instruments. Numba could not compile other instrumented modules.
READERS = (
    "placer.files", "placer.graph", "placer.measure", "placer.profile.operators", "placer.splits", "surrogate.scaling",
    "experiments.campaign",
)  # fmt: skip
LONGEST_INPUT = 4096  # bytes
OURS = 0.5  # share of inputs that the project's own mutations make; libFuzzer's make the others
OPTIONS = (f"-max_len={LONGEST_INPUT}", "-len_control=0", "-rss_limit_mb=0", "-timeout=0")  # the judge uses SIGALRM
RUNS = 100_000
PROGRAM = ("-m", "experiments.fuzz.guided")


def fuzzer() -> ModuleType:
    """The module `atheris`. Raises BadInputError if it is not installed."""
    try:
        return import_module("atheris")
    except ImportError:
        raise BadInputError(
            "Guided fuzzing needs atheris, which is not installed: pip install 'atheris==3.0.*' (there are wheels for "
            "Linux on x86-64)."
        ) from None


def kinds() -> dict[str, Kind]:
    """Every kind of input. Readers that were not imported before are instrumented.

    Raises BadInputError without atheris.
    """
    with fuzzer().instrument_imports(include=PACKAGES, exclude=list(_not_followed())), _silent():
        return dict(import_module("experiments.fuzz.guided_targets").KINDS)


def _not_followed() -> Iterator[str]:
    for path in (path for package in PACKAGES for path in (HOME / package).rglob("*.py")):
        name = ".".join(path.relative_to(HOME).with_suffix("").parts).removesuffix(".__init__")
        if not any(f"{name}.".startswith(f"{reader}.") for reader in READERS):
            yield name


@contextmanager
def _silent() -> Iterator[None]:
    """Silence stderr in the block, because Atheris names every module that it instruments."""
    before, null = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 2)
    try:
        yield
    finally:
        os.dup2(before, 2)
        os.close(before)
        os.close(null)


def fuzz(guided: Guided, runs: int, corpus: Path, ended: Callable[[Tally], Any]) -> None:
    """Use `runs` inputs and call `ended`, which ends this process: libFuzzer does not return.

    corpus: a folder with the first inputs, in which inputs that reach something new are kept.
    """
    atheris, tally = fuzzer(), Tally(guided.refusal)
    for i, seed in enumerate(guided.seeds):
        (corpus / f"seed-{i}").write_bytes(seed)

    def use(data: bytes) -> None:
        tally.use(guided.given(data))
        if tally.inputs >= runs:
            ended(tally)

    def mutate(data: bytes, most: int, seed: int) -> bytes:
        rng = random.Random(seed)
        return guided.mutate(data, rng)[:most] if rng.random() < OURS else bytes(atheris.Mutate(data, most))

    with on_time():
        atheris.Setup([sys.argv[0], *OPTIONS, str(corpus)], use, custom_mutator=mutate)
        atheris.Fuzz()


def one(name: str, runs: int, corpus: Path | None) -> None:
    """Fuzz one kind, print the result as one JSON object, and end this process."""
    known = kinds()
    if name not in known:
        raise BadInputError(f"{short(name)} is no kind of input; there are {listed(known)}.")
    folder = Path(tempfile.mkdtemp(prefix="placer-fuzz-"))
    kept, files = corpus or folder / "corpus", folder / "files"

    def ended(tally: Tally) -> None:
        print(json.dumps(asdict(tally.found())), flush=True)
        shutil.rmtree(folder, ignore_errors=True)
        os._exit(0)

    try:
        files.mkdir()
        kept.mkdir(parents=True, exist_ok=True)
        fuzz(known[name].opened(files), runs, kept, ended)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def every(runs: int, corpora: Path | None) -> int:
    """Fuzz each kind, with `runs` inputs or its share of them, in a separate process, and print a line for each.

    Returns the number of mishandled inputs; a process without a result counts as one.
    """
    wrong = 0
    for name, kind in kinds().items():
        found = _apart(name, max(1, int(runs * kind.share)), corpora)
        wrong += found["mishandled"]
        line = f"{name}: {found['mishandled']} of {found['inputs']} inputs mishandled, {found['refused']} refused"
        print(line, *found["lines"], sep="\n  ", flush=True)
    return wrong


def _apart(name: str, runs: int, corpora: Path | None) -> dict[str, Any]:
    words = [name, str(runs), *([str(corpora / name.replace(" ", "-"))] if corpora else [])]
    ran = subprocess.run([sys.executable, *PROGRAM, *words], capture_output=True, text=True, check=False)
    try:
        return dict(json.loads(ran.stdout.splitlines()[-1]))
    except (ValueError, IndexError):
        line = f"the process ended with {ran.returncode}: {ran.stderr[-2000:]}"
        return {"inputs": 0, "refused": 0, "mishandled": 1, "lines": [line]}


def main() -> None:
    """`python -m experiments.fuzz.guided all|NAME [RUNS] [FOLDER]` fuzzes one kind, or all, with RUNS inputs. FOLDER
    keeps the inputs that reach something new, for the next time.
    """
    name, runs, folder = (*sys.argv[1:], *("all", str(RUNS), "")[len(sys.argv) - 1 :])
    corpus = Path(folder) if folder else None
    try:
        if name == "all":
            sys.exit(every(int(runs), corpus) > 0)
        one(name, int(runs), corpus)
    except PlacerError as error:
        tell(error)
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
