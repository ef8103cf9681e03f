"""README and docs keep up with the code: commands parse, Python compiles, imports exist, links lead somewhere."""

from __future__ import annotations

import ast
import importlib
import re
import shlex
from pathlib import Path

import pytest
import typer

from experiments.cli.app import app

HOME = Path(__file__).parents[2]
PAGES = [HOME / "README.md", HOME / "CONTRIBUTING.md", HOME / "CHANGELOG.md", *sorted((HOME / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
COMMANDS = {
    line
    for page in PAGES
    for _, code in BLOCK.findall(page.read_text())
    for line in code.replace("\\\n", " ").splitlines()
    if line.startswith(("placer ", "make "))
} | {
    line for page in PAGES for line in re.findall(r"`(placer (?!Y)[a-z]+ [^`]*)`", page.read_text().replace("\n", " "))
}
PYTHON = [(page, code) for page in PAGES for language, code in BLOCK.findall(page.read_text()) if language == "python"]
OUTPUT_AGE = re.compile(r"taken\s+on\s+20\d\d-\d\d-\d\d")
PLACEHOLDER = re.compile(r"\b[A-Z]{2,}\b|\.\.\.|\bN\b")


@pytest.mark.parametrize("line", sorted(line for line in COMMANDS if not PLACEHOLDER.search(line)))
def test_command_lines_parse(line):
    words = shlex.split(line)
    if words[0] == "make":
        assert all(re.search(rf"^{word}:", (HOME / "Makefile").read_text(), re.MULTILINE) for word in words[1:])
        return
    command, name = typer.main.get_command(app), "placer"
    arguments = words[1:]
    while hasattr(command, "commands") and not arguments[0].startswith("-"):
        name = arguments.pop(0)
        assert name in command.commands, line
        command = command.commands[name]
    try:
        command.make_context(name, arguments)
    except typer.Exit:
        assert arguments == ["--version"]


@pytest.mark.parametrize(("page", "code"), PYTHON)
def test_python_compiles_and_names_exist(page, code):
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            module = importlib.import_module(node.module)
            assert all(hasattr(module, alias.name) for alias in node.names), page
        elif isinstance(node, ast.Import):
            assert all(importlib.import_module(alias.name) for alias in node.names), page
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "placer":
            assert hasattr(importlib.import_module("placer"), node.attr), page


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    text = BLOCK.sub("", page.read_text())
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        path, _, anchor = target.partition("#")
        if "://" in target:
            continue
        found = page.parent / path if path else page
        assert found.exists(), f"{page.name}: {target}"
        if anchor and found.suffix == ".md":
            heads = re.findall(r"^#+ (.*)$", found.read_text(), re.MULTILINE)
            assert anchor in {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}, target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_files_that_are_named_exist(page):
    for path in set(re.findall(r"`((?:placer|surrogate|search|experiments|tests)/[\w/]+\.py)`", page.read_text())):
        assert (HOME / path).exists() or path.endswith("/yours.py"), path


def test_the_readme_is_short_and_its_output_is_dated():
    text = (HOME / "README.md").read_text()
    assert len(text.splitlines()) <= 200
    for shown in re.finditer(r"^```\n\w+: \d+ ops", text, re.MULTILINE):
        assert OUTPUT_AGE.search(text[max(0, shown.start() - 400) : shown.start()])
