"""Names, docstrings, options and keys use the field's own words (docs/contributing.md)."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from gpuctl.domain.report import JSON_SCHEMA
from tests.contracts.sources import ROOT, python_files, tree
from tests.contracts.test_commands import COMMANDS, passed

# Verbs of speech and pronouns that say nothing of a value.
BANNED = frozenset(
    [
        "told",
        "tells",
        "said",
        "says",
        "seen",
        "found",
        "wish",
        "way",
        "ways",
        "there",
        "asked",
        "asker",
        "askers",
        "hearing",
        "held",
        "going",
        "standing",
        "spared",
        "ended",
        "given",
        "wanted",
        "here",
        "own",
        "each",
        "words",
    ]
)
OPENINGS = ("What ", "Whether ", "How ", "Of ", "The same", "Those ", "Its ", "That ", "Who ", "Where ")
FOLDERS = sorted({path.parent.relative_to(ROOT) for top in ("gpuctl", "plugins") for path in python_files(ROOT / top)})


def definitions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef]:
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and not node.name.startswith("_"):
            yield node


def violations(folder: Path) -> tuple[list[str], list[str]]:
    """Public names with a banned word, and public docstrings that open with a question word or pronoun."""
    names, docstrings = [], []
    for path in sorted((ROOT / folder).glob("*.py")):
        where = str(path.relative_to(ROOT))
        if BANNED & set(path.stem.split("_")):
            names.append(where)
        for node in definitions(path):
            if node.name.lower() in BANNED:
                names.append(f"{where}:{node.lineno} {node.name}")
            if (ast.get_docstring(node) or "").startswith(OPENINGS):
                docstrings.append(f"{where}:{node.lineno} {node.name}")
    return names, docstrings


@pytest.mark.parametrize("folder", FOLDERS, ids=str)
def test_names_and_docstrings_use_the_fields_own_words(folder: Path) -> None:
    names, docstrings = violations(folder)
    assert names == []
    assert docstrings == []


def test_no_option_has_a_banned_word() -> None:
    options = Counter(
        word
        for command in COMMANDS.values()
        for parameter in command.params
        if isinstance(parameter, click.Option)
        for option in parameter.opts
        for word in option.lstrip("-").split("-")
    )
    assert BANNED & set(options) == set()
    assert any(passed(command) for command in COMMANDS.values())


KEY = re.compile(r"[a-z][a-z0-9_]*")


def keys(tree: ast.AST) -> Iterator[str]:
    """Names that can become keys of JSON: of literal dicts, of keyword arguments, and of fields of classes."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Dict):
            yield from (key.value for key in node.keys if isinstance(key, ast.Constant) and isinstance(key.value, str))
        elif isinstance(node, ast.keyword):
            yield node.arg or ""
        elif isinstance(node, ast.ClassDef):
            fields = [line.target for line in node.body if isinstance(line, ast.AnnAssign)]
            yield from (field.id for field in fields if isinstance(field, ast.Name) and not field.id.startswith("_"))


@pytest.mark.parametrize("folder", FOLDERS, ids=str)
def test_no_key_of_a_report_has_a_banned_word(folder: Path) -> None:
    named = {key for path in (ROOT / folder).glob("*.py") for key in keys(tree(path))}
    banned = {key for key in named if KEY.fullmatch(key) and BANNED & set(key.split("_"))}
    assert banned == set()


def test_no_key_of_the_findings_schema_has_a_banned_word() -> None:
    schema = {*JSON_SCHEMA["properties"], *JSON_SCHEMA["properties"]["findings"]["items"]["properties"]}
    assert {key for key in schema if BANNED & set(key.split("_"))} == set()


def test_assigned_names_use_the_fields_own_words() -> None:
    names = [
        node.id
        for folder in FOLDERS
        for path in (ROOT / folder).glob("*.py")
        for node in ast.walk(tree(path))
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    ]
    banned = Counter(name for name in names if name in BANNED)
    assert banned.total() < len(names) / 100, banned
