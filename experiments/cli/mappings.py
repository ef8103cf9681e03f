"""`placer show` and `placer diff`: the content of mapping files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from experiments.cli import options
from experiments.cli.options import show_result

FOLDER = "A mapping (placer.mapping/1 or /2), or the folder that placer search --out wrote."


def show(
    mapping: Annotated[Path, typer.Argument(help=FOLDER)],
    graph: Annotated[Path | None, typer.Option(help="Check it against this graph (placer.graph/1).")] = None,
    topology: Annotated[Path | None, typer.Option(help="... on these devices (placer.topology/1).")] = None,
    as_json: options.AsJson = False,
) -> None:
    """Show what a mapping puts on each device and what crosses between them, and check that it fits its graph.

    Example: placer show out/
    """
    from experiments.jobs.mappings import shown
    from experiments.report.mappings import show_mapping

    facts = shown(mapping, graph, topology)
    show_result(as_json, facts, lambda: show_mapping(facts))


def diff(
    one: Annotated[Path, typer.Argument(help=FOLDER)],
    other: Annotated[Path, typer.Argument(help="Another one.")],
    as_json: options.AsJson = False,
) -> None:
    """Show which ops run on another device in the second of two mappings: how many, of which layers.

    Example: placer diff before/mapping.json after/mapping.json
    """
    from experiments.jobs.mappings import compared
    from experiments.report.mappings import show_difference

    facts = compared(one, other)
    show_result(as_json, facts, lambda: show_difference(facts))
