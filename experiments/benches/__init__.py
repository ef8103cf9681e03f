"""The benchmarks behind the numbers: each prints one JSON object, and with --record keeps it in benchmarks/."""

from __future__ import annotations

from dataclasses import replace

from experiments.benches import (
    gpu,
    main_job,
    online,
    operators,
    sample_efficiency,
    scaling,
    search_quality,
    simulator_accuracy,
    simulator_speed,
    spoc,
    surrogates,
)
from experiments.benches.bench import Bench, BenchOptions, Facts, check_folder, keep
from placer.errors import BadInputError

BENCHES = {
    "gpu": Bench(gpu.run, gpu.page),
    "main-job": Bench(main_job.run, main_job.page),
    "online": Bench(online.run, online.page),
    "operators": Bench(operators.run, operators.page),
    "sample-efficiency": Bench(sample_efficiency.run, sample_efficiency.page),
    "scaling": Bench(scaling.run, scaling.page),
    "search-quality": Bench(search_quality.run, search_quality.page),
    "simulator-accuracy": Bench(simulator_accuracy.run, simulator_accuracy.page),
    "simulator-speed": Bench(simulator_speed.run, simulator_speed.page),
    "spoc": Bench(spoc.run, spoc.page),
    "surrogates": Bench(surrogates.run, surrogates.page),
}
ON_DEVICES, TIMED = ("gpu",), ("gpu", "spoc")  # these take --devices, and --minutes


def run_bench(name: str, options: BenchOptions, *, record: bool) -> Facts:
    """Run the benchmark `name`; with `record` write benchmarks/NAME.json and BENCHMARKS.md anew.

    Raises BadInputError for a name that is none, and for options that this benchmark has no use for.
    """
    if name not in BENCHES:
        raise BadInputError(f"there is no benchmark {name!r}; choose one of {', '.join(sorted(BENCHES))}.")
    if options.devices is not None and name not in ON_DEVICES:
        raise BadInputError(f"{name} takes no --devices; leave it out ({', '.join(ON_DEVICES)} takes it).")
    if options.minutes is not None and name not in TIMED:
        raise BadInputError(f"{name} takes no --minutes; leave it out ({', '.join(TIMED)} take it).")
    if record:
        check_folder()
    facts = BENCHES[name].run(replace(options, record=record))
    if record:
        keep(name, facts, {name: bench.page for name, bench in BENCHES.items()})
    return facts
