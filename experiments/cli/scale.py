"""`placer scale`: fit a scaling formula to a table of runs, predict by it, and scale a captured step."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from experiments.cli.options import AsJson, GraphFile, Quiet, TopologyFile, show_result
from placer.errors import BadInputError, try_each
from placer.files import check_outputs

app = typer.Typer(
    name="scale",
    help="Performance models: fit one to a table of runs, predict by it, or scale a captured step.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Plot = Annotated[Path | None, typer.Option("--plot", help="Draw the curve (.png, .svg, .pdf).")]
Pays = Annotated[float, typer.Option("--pays", help="The relative gain from which one more pays.")]


@app.command("fit")
def fit(
    data: Annotated[Path, typer.Argument(help="A table of runs: .csv with a header, or .parquet.")],
    target: Annotated[str, typer.Option(help="The column to explain, such as step_s.")],
    intrinsic: Annotated[str, typer.Option(help="Columns whose powers are summed; a*b is one summand.")],
    extrinsic: Annotated[str, typer.Option(help="Columns whose powers scale the sum.")] = "",
    penalty: Annotated[str, typer.Option(help="Penalty on the constants: l2, l1 or none.")] = "l2",
    exponents: Annotated[str, typer.Option(help="The lowest and the highest exponent.")] = "-3..3",
    samples: Annotated[int, typer.Option(help="Bootstrap samples for the intervals.")] = 100,
    pays: Pays = 0.05,
    seed: Annotated[int, typer.Option(help="The same seed finds the same constants.")] = 0,
    out: Annotated[Path | None, typer.Option(help="Write the model (placer.scaling/1).")] = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Fit t = (sum_i a_i x_i^p_i) * prod_j y_j^q_j + C to the runs, and say which column matters and how.

    Example: placer scale fit runs.csv --target step_s --intrinsic 'filters*kernel,layers' --extrinsic batch,devices
    """
    from experiments.cli.scale_words import bounds, check_pays
    from experiments.jobs.scale import fit_command
    from experiments.report.progress import status
    from experiments.report.report_files import write_each
    from experiments.report.scaling import show_fit
    from surrogate.scaling.files import write_scaling
    from surrogate.scaling.fit import FitSettings
    from surrogate.scaling.form import Form

    limits = bounds(exponents)
    check_pays(pays)
    form, settings = Form.parse(intrinsic, extrinsic), FitSettings(limits, limits, penalty, samples=samples, seed=seed)
    check_outputs(out, inputs=[data])
    with status(quiet) as advance:
        facts, model = fit_command(data, target, form, settings, pays, advance)

    def write(path: Path) -> None:
        write_scaling(path, model)
        print(f"wrote {path}", file=sys.stderr)

    try_each(lambda: show_result(as_json, facts, lambda: show_fit(facts)), lambda: write_each((out, write)))


@app.command("predict")
def predict(
    model: Annotated[Path, typer.Argument(help="placer.scaling/1, as scale fit --out writes it.")],
    given: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME=VALUE]...", help="Columns of the run; the others have usual values."),
    ] = None,
    vary: Annotated[str | None, typer.Option(metavar="NAME=FROM..TO", help="A row per value; also NAME=a,b,c.")] = None,
    plot: Plot = None,
    pays: Pays = 0.05,
    as_json: AsJson = False,
) -> None:
    """Predict the time of a run by a fitted model, with its interval, and along one column.

    Example: placer scale predict model.json batch=64 --vary devices=1..16 --plot curve.png
    """
    from experiments.cli.scale_words import all_assigned, check_pays, varied
    from experiments.jobs.scale import prediction_facts
    from experiments.report.plots.picture import check_picture
    from experiments.report.plots.scaling import draw_curve
    from experiments.report.report_files import write_each
    from experiments.report.scaling import prediction_curve, show_prediction
    from surrogate.scaling.files import read_scaling

    check_picture(plot, "--plot")
    check_pays(pays)
    if plot is not None and vary is None:
        raise BadInputError("--plot draws a curve along one column; name it with --vary NAME=FROM..TO.")
    check_outputs(plot, inputs=[model])
    fitted = read_scaling(model)
    values = all_assigned(fitted, given or [])
    name, along = varied(fitted, vary) if vary else (None, [])
    facts = prediction_facts(fitted, values, name, along, pays)

    def draw(path: Path) -> None:
        draw_curve(prediction_curve(facts, fitted.ranges.get(name or "")), path)

    try_each(lambda: show_result(as_json, facts, lambda: show_prediction(facts)), lambda: write_each((plot, draw)))


@app.command("sgd")
def sgd(
    graph: GraphFile,
    topology: TopologyFile,
    devices: Annotated[str, typer.Option(help="How many devices train: from..to, or a,b,c.")] = "1..16",
    form: Annotated[str, typer.Option(help="How gradients are summed: ring or server.")] = "ring",
    overlap: Annotated[bool, typer.Option(help="Sum gradients during the backward pass.")] = True,
    batch: Annotated[str, typer.Option(help="fixed: the graph's batch per device; shared: they share it.")] = "fixed",
    slots: Annotated[int, typer.Option(help="Optimizer slots per parameter: 0 SGD, 1 momentum, 2 Adam.")] = 0,
    bucket: Annotated[float, typer.Option("--bucket-bytes", help="Sum gradients in pieces of this size.")] = 0.0,
    input_bytes: Annotated[float, typer.Option(help="Size of the graph's batch.")] = 0.0,
    io: Annotated[
        float, typer.Option("--io-bytes-per-s", help="Rate at which batches are read, all devices together.")
    ] = 1e9,
    host: Annotated[float, typer.Option("--host-bytes-per-s", help="Rate at which batches are copied.")] = 1e10,
    prefetch: Annotated[bool, typer.Option(help="Read and copy the next batch during the step.")] = True,
    host_busy: Annotated[
        float, typer.Option(help="Share of the copying that keeps devices from computing: 1 for CPU workers.")
    ] = 0.0,
    plot: Plot = None,
    pays: Pays = 0.05,
    as_json: AsJson = False,
) -> None:
    """Predict synchronous data-parallel training of a captured step by formula; TensorFlow is not needed.

    Only --form server --batch shared was checked against the clock (placer bench scaling), not the defaults.

    Example: placer scale sgd graph.json topology.json --devices 1..16 --plot sgd.png
    """
    from experiments.cli.scale_words import check_pays, counts
    from experiments.jobs.scale import sgd_command
    from experiments.report.plots.picture import check_picture
    from experiments.report.plots.scaling import draw_sgd
    from experiments.report.report_files import write_each
    from experiments.report.scaling import sgd_curve, show_sgd
    from surrogate.scaling.sync_sgd import SgdSettings

    settings = SgdSettings(form, overlap, batch, slots, bucket, input_bytes, io, host, prefetch, host_busy)
    check_picture(plot, "--plot")
    check_pays(pays)
    check_outputs(plot, inputs=(graph, topology))
    facts, last = sgd_command(graph, topology, counts(devices), settings, pays)
    try_each(
        lambda: show_result(as_json, facts, lambda: show_sgd(facts, last)),
        lambda: write_each((plot, lambda path: draw_sgd(sgd_curve(facts), path))),
    )
