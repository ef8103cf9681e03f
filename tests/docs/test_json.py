"""docs/json.md names the fields that `--json` prints, and no others."""

from __future__ import annotations

import ast
import inspect
import re
from dataclasses import fields
from pathlib import Path
from textwrap import dedent

import pytest

from experiments.campaign import standing, warm_start
from experiments.jobs import mappings, plan, plan_model, scale, spoc
from experiments.jobs.search.finding import Pipelined
from experiments.report import comparison, profile, search_tables, topology
from experiments.report.campaign import export
from placer.devices.workers import standalone
from surrogate.features.spoc import Spoc
from surrogate.scaling.reading import Factor

TEXT = (Path(__file__).parents[2] / "docs" / "json.md").read_text()
SECTIONS = dict(re.findall(r"^## ([\w ]+)\n(.*?)(?=^## |\Z)", TEXT, re.MULTILINE | re.DOTALL))
OF = {
    "search": (search_tables.finding_facts, search_tables._row_facts, search_tables.result_facts),
    "compare": (
        comparison.comparison_facts, comparison._standing_facts, comparison._longer_facts, comparison._row_facts,
        search_tables.result_facts,
    ),
    "plan and simulate": (plan.planned, plan._facts, plan_model.plan_model),
    "devices": (topology.topology_facts,),
    "profile": (profile.profile_facts, profile.family_facts),
    "spoc": (spoc.model_facts, spoc.graph_facts),
    "scale": (scale.fit_command, scale.fit_facts, scale.prediction_facts, scale.sgd_command, scale._sgd_row),
    "campaign": (standing.standing, standing._cell, standing.after, warm_start.warm_facts, export.export),
    "show and diff": (
        mappings.shown, mappings.file_facts, mappings.compared, mappings._devices, mappings._crossing,
    ),
    "worker": (standalone.main,),
}  # fmt: skip
ALSO = {  # fields that do not stand as keys in these functions
    "search": [f.name for f in fields(Pipelined)],
    "devices": ["src", "dst", "latency_s", "bandwidth_bytes_per_s", "send_s", "send_s_per_byte", "receive_s",
                "receive_s_per_byte"],
    "spoc": [*(f.name for f in fields(Spoc)), *spoc.DERIVED, "models"],
    "scale": [*scale.MODEL_FACTS, *(f.name for f in fields(Factor)), *(f"{lane}_s" for lane in scale.LANES),
              "form", "overlap", "batch", "value", "low", "high", "ratio"],
    "campaign": ["interrupted", "after", "best"],
}  # fmt: skip
WORDS = {  # in code type, and no fields: options, commands, other names
    "search": {"--store", "best"},
    "compare": {"search", "--longer"},
    "plan and simulate": {"plan", "max-load", "--costs predicted"},
    "show and diff": {"show", "diff", "null"},
    "scale": {"scale fit", "scale predict", "scale sgd"},
    "campaign": {
        "campaign status", "run", "report", "export", "perfetto", "measured", "predicted", "done", "begun",
        "waiting", "not in the spec",
    },
}  # fmt: skip


def keys(function):
    """The constant keys of all dicts that a function writes down."""
    tree = ast.parse(dedent(inspect.getsource(function)))
    dicts = [node for node in ast.walk(tree) if isinstance(node, ast.Dict)]
    return {key.value for node in dicts for key in node.keys if isinstance(key, ast.Constant)}


def test_each_command_has_its_section():
    assert set(SECTIONS) == set(OF)


@pytest.mark.parametrize("command", OF)
def test_fields(command):
    printed = set().union(*(keys(function) for function in OF[command]), ALSO.get(command, ()))
    described = set(re.findall(r"`([^`]+)`", SECTIONS[command]))
    assert printed <= described, "not described"
    assert described - WORDS.get(command, set()) <= printed, "described, and not printed"
