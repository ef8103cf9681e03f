"""`placer campaign`: run a campaign, show its standing, and export and report what it measured."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from experiments.cli.options import AsJson, Quiet, show_result

if TYPE_CHECKING:
    from experiments.campaign.spec import Spec
    from experiments.campaign.store import CampaignStore

app = typer.Typer(
    name="campaign",
    help="Offline campaigns: many searches in one file, resumed by the same command.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

SpecFile = Annotated[Path, typer.Argument(metavar="SPEC", help="What to search (placer.campaign/1, TOML).")]
SpecOrStore = Annotated[Path, typer.Argument(metavar="SPEC", help="The campaign's spec, or its store.")]


@app.command("run")
def run(
    spec: SpecFile,
    warm_start: Annotated[
        list[Path] | None,
        typer.Option(metavar="STORE", help="Begin with the best mappings of alike cases in another campaign's store."),
    ] = None,
    ray: Annotated[
        str | None,
        typer.Option(metavar="local|HOST:PORT", help="Search cells of files side by side over this Ray cluster."),
    ] = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Search every cell of a campaign; the same command goes on where it was stopped or killed, with --ray or without.

    Example: placer campaign run campaign.toml --warm-start last-week.sqlite
    """
    from experiments.campaign.ray.parallel_searches import ParallelSearches
    from experiments.campaign.run import Campaign
    from experiments.campaign.spec import read_spec
    from experiments.campaign.standing import standing
    from experiments.campaign.store import CampaignStore
    from experiments.jobs.interrupt import interruptible
    from experiments.report.campaign.terminal import progress, show_standing
    from placer.errors import PlacerError, listed, raise_last, tried

    read = read_spec(spec, warm_start or ())
    with nullcontext() if ray is None else _ray(ray), CampaignStore(read.store) as store:
        with interruptible() as pressed:
            shown = progress(quiet, several=ray is not None)
            over_ray = None if ray is None else ParallelSearches(read, store, shown, pressed).run
            campaign = Campaign(read, store, shown, pressed, search_files=over_ray)
            campaign.run()
        facts = {**standing(store), "interrupted": pressed()}
    failures = tried(lambda: show_result(as_json, facts, lambda: show_standing(facts)))
    if campaign.lost:
        lost = f"{listed(campaign.lost)} could not be measured, for the reasons above; the same command tries again."
        failures.append(PlacerError(lost))
    raise_last(failures)


@app.command("status")
def status(spec: SpecOrStore, as_json: AsJson = False) -> None:
    """Show where a campaign stands, also while it runs.

    Example: placer campaign status campaign.toml
    """
    from experiments.campaign.standing import standing
    from experiments.report.campaign.terminal import show_standing

    with _opened(spec) as store:
        facts = standing(store)
    show_result(as_json, facts, lambda: show_standing(facts))


@app.command("export")
def export(
    spec: SpecOrStore,
    out: Annotated[
        str | None, typer.Option(help="A .csv, .parquet or .db (Optuna) file, a storage (sqlite:///FILE), or a folder.")
    ] = None,
    format: Annotated[
        str | None, typer.Option(help="csv, parquet, optuna, tensorboard or perfetto, if the name does not say.")
    ] = None,
    best: Annotated[Path | None, typer.Option(help="A folder: each measured case's best mapping, a file.")] = None,
    as_json: AsJson = False,
) -> None:
    """Write a campaign's measurements for other programs, or the best mappings that it measured.

    Example: placer campaign export campaign.toml --out trials.csv --best mappings
    """
    from experiments.campaign.measured.mappings import check_folder, write_best
    from experiments.report.campaign.export import check_export
    from experiments.report.campaign.export import export as write
    from placer.errors import BadInputError, raise_last, tried

    if out is None and best is None:
        raise BadInputError("there is nothing to write; give --out FILE, --best FOLDER, or both.")
    if best is not None:
        check_folder(best)
    meant = None if out is None else check_export(out, format, _inputs(spec))
    facts: dict[str, Any] = {}

    def write_out() -> None:
        if out is not None and meant is not None:
            facts.update(write(store, _read(spec), out, meant))

    def write_mappings() -> None:
        if best is not None:
            facts["best"], left_out, failures = write_best(store, best)
            facts["left_out"] = {**facts.get("left_out", {}), **left_out}
            raise_last(failures)

    with _opened(spec) as store:
        failures = tried(write_out, write_mappings)
    if facts:
        failures += tried(lambda: show_result(as_json, facts, lambda: _show_written(facts)))
    raise_last(failures)


@app.command("report")
def report(
    spec: SpecOrStore,
    out: Annotated[
        Path | None, typer.Option(help="Write it there instead of printing it: .html, .md, .png, .svg or .pdf.")
    ] = None,
    format: Annotated[str | None, typer.Option(help="html or md, whatever the file's name; md where printed.")] = None,
    as_json: AsJson = False,
) -> None:
    """Report what a campaign found against its baselines: a page with figures, Markdown, or a picture of convergence.

    Example: placer campaign report campaign.toml --out report.html
    """
    from experiments.campaign.standing import after, standing
    from experiments.report.campaign.report import budgets, check_report, report_content
    from experiments.report.report_files import write_each
    from placer.errors import try_each
    from placer.files import check_outputs, write_whole

    kind = check_report(out, format)
    check_outputs(out, inputs=_inputs(spec))
    with _opened(spec) as store:
        content = b"" if as_json and out is None else report_content(store, _read(spec), kind)
        facts = {**standing(store), "after": after(store, budgets(store, _read(spec)))} if as_json else {}

    def show() -> None:
        if out is None:
            print(content.decode())

    try_each(
        lambda: show_result(as_json, facts, show),
        lambda: write_each((out, lambda path: write_whole(path, content))),
    )


def _show_written(facts: dict[str, Any]) -> None:
    if "out" in facts:
        what = f"{facts['rows']} rows" if "rows" in facts else f"{facts['traces']} traces"
        print(f"wrote {what} to {facts['out']}", file=sys.stderr)
    for case, why in facts.get("left_out", {}).items():
        print(f"left out {case}: {why}", file=sys.stderr)
    for case, path in facts.get("best", {}).items():
        print(f"wrote the best mapping of {case} to {path}", file=sys.stderr)


def _ray(address: str) -> AbstractContextManager[object]:
    """The connection to a Ray cluster. Raises BadInputError if there is none."""
    from placer.devices.ray.connection import connect

    return connect(address)


def _opened(path: Path) -> CampaignStore:
    """The store of a campaign, opened for reading. Raises BadInputError and PlacerError if there is none."""
    from experiments.campaign.store import CampaignStore

    spec = _read(path)
    return CampaignStore(path if spec is None else spec.store, reads=True)


def _inputs(path: Path) -> list[Path]:
    """The files that a campaign is read from: its spec and all that this names, and its store. Raises BadInputError."""
    spec = _read(path)
    if spec is None:
        return [path]
    cases = {cell.case.key: cell.case for cell in spec.cells}.values()
    named = [file for case in cases for file in case.files]
    return [path, spec.store, *(store for _, store in spec.warm_start), *named]


def _read(path: Path) -> Spec | None:
    """The spec, whose files may be missing; None for a store. Raises BadInputError."""
    from experiments.campaign.spec import read_spec
    from experiments.campaign.store import is_store

    return None if is_store(path) else read_spec(path, lenient=True)
