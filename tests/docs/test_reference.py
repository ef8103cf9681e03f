"""docs/reference.md says what the code says: names, signatures, commands, fields and formats."""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path

import pytest

import placer.keras
from placer import phase_names
from placer.graph import graph_files, mapping_files

TEXT = (Path(__file__).parents[2] / "docs" / "reference.md").read_text()
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
SIGNATURES = [code for language, code in BLOCKS if language == "py"]
EXAMPLES = {
    "placer.graph/1": (graph_files.GraphFile, graph_files.OpEntry),
    "placer.topology/1": (graph_files.TopologyFile, graph_files.DeviceEntry, graph_files.LinkEntry),
    "placer.mapping/1": (mapping_files.MappingFile, mapping_files.GraphMark),
}


def test_all_public_names_are_described():
    for name in [*placer._MODULE_OF, "AutoPlace"]:
        assert re.search(rf"\b{name}\b[`(]", TEXT), name


@pytest.mark.parametrize("written", SIGNATURES)
def test_signatures(written):
    name, parameters = re.fullmatch(r"placer\.([\w.]+)(\(.*\))\n", written).groups()
    found = placer.keras.AutoPlace if name == "keras.AutoPlace" else getattr(placer, name)
    described = ast.parse(f"def f{parameters}: ...").body[0].args
    real = [p for p in inspect.signature(found).parameters.values() if p.name != "self"]
    assert [a.arg for a in described.args] == [p.name for p in real if p.kind is p.POSITIONAL_OR_KEYWORD]
    assert [a.arg for a in described.kwonlyargs] == [p.name for p in real if p.kind is p.KEYWORD_ONLY]
    values = [ast.literal_eval(d) for d in (*described.defaults, *described.kw_defaults) if d is not None]
    assert values == [p.default for p in real if p.default is not p.empty]


@pytest.mark.parametrize("format", EXAMPLES)
def test_fields_of_files(format):
    section = TEXT.split(f"### {format}")[1].split("\n###")[0]
    for kind in EXAMPLES[format]:
        for field in kind.__struct_fields__:
            assert f"`{field}`" in section or field == "format", (format, field)


def test_examples_of_files_are_read(tmp_path):
    paths = []
    for i, code in enumerate(code for language, code in BLOCKS if language == "json"):
        paths.append(tmp_path / f"{i}.json")
        paths[-1].write_text(code)
    graph, topology = graph_files.read_graph(paths[0]), graph_files.read_topology(paths[1])
    assert mapping_files.read_mapping(paths[2], graph, topology).assignment == {"conv1": "gpu:0", "relu1": "gpu:0"}


def test_phases_are_those_there_are():
    (row,) = [line for line in TEXT.splitlines() if line.startswith("| `step.phase` |")]
    assert set(re.findall("`(.+?)`", row.split("|")[2])) == {
        p for name, p in vars(phase_names).items() if name.isupper()
    }


def test_commands_are_those_there_are():
    import typer

    from experiments.cli.app import app

    listed = TEXT.split("## Commands\n\n")[1].split("; each says")[0]
    found = set()
    for name, command in typer.main.get_command(app).commands.items():
        found |= {f"{name} {inner}" for inner in getattr(command, "commands", ())} or {name}
    assert set(re.findall(r"`([\w ]+)`", listed)) == found
