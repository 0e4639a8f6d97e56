"""The field's own words (docs/contributing.md): what is still named or written otherwise may only become less."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from gpuctl.domain.report import JSON_SCHEMA
from tests.contracts.sources import ROOT, python_files
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
# Folder -> how many public names and docstrings are left there. Lower a number when you mend some; never raise one.
LEFT: dict[str, tuple[int, int]] = {
    "gpuctl/cli/shared": (0, 2),
}
FOLDERS = sorted({path.parent.relative_to(ROOT) for top in ("gpuctl", "plugins") for path in python_files(ROOT / top)})


def definitions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef]:
    for node in ast.walk(ast.parse(path.read_text(), path.name)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and not node.name.startswith("_"):
            yield node


def left(folder: Path) -> tuple[list[str], list[str]]:
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
    names, docstrings = left(folder)
    allowed = LEFT.get(str(folder), (0, 0))
    assert len(names) <= allowed[0], names
    assert len(docstrings) <= allowed[1], docstrings


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


def test_no_key_of_a_report_has_a_banned_word() -> None:
    keys = {*JSON_SCHEMA["properties"], *JSON_SCHEMA["properties"]["findings"]["items"]["properties"]}
    assert {key for key in keys if BANNED & set(key.split("_"))} == set()
