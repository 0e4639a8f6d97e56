"""Names, docstrings, options and keys use the field's own words (docs/contributing.md)."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import click
import pytest

from gpuctl.domain.report import JSON_SCHEMA
from tests.contracts.test_commands import COMMANDS, passed
from tests.rig.source_files import ROOT, nodes, python_files

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
# Words of the dialect that no message, hint, help text or docstring has.
BANNED_IN_TEXTS = re.compile(
    r"\b(told|tells|mend|mended|mends|anew|so many|nobody knows|put up with|of before|come to its end)\b",
    re.IGNORECASE,
)
ALLOWED_NAMES = {
    "own_dirs": "the folders of gpuctl itself, beside those of the user",
    "NotFound": "the reason that Kubernetes' API gives",
    "NOT_FOUND": "the shell's term for exit code 127",
    "ENDED": "a message of the protocol between gpuctl and pods",
}
ALLOWED_TEXTS = {
    "gpuctl/tmux/versions/terminals.py": "AppleScript, whose keyword is `tell`",
    "gpuctl/nccl/runners/kube/hang_probe.py": "a shell script with a function of that name",
    "gpuctl/cluster/manifests/scripts.py": "comments of scripts that run in pods",
}
OPENINGS = ("What ", "Whether ", "How ", "Of ", "The same", "Those ", "Its ", "That ", "Who ", "Where ")
FOLDERS = sorted({path.parent.relative_to(ROOT) for top in ("gpuctl", "plugins") for path in python_files(ROOT / top)})


def definitions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef]:
    for node in nodes(path):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and not node.name.startswith("_"):
            yield node


def words_of(name: str) -> set[str]:
    """Words of a snake_case, CamelCase or UPPER_CASE name, in lower case."""
    return {word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)}


def is_banned(name: str) -> bool:
    return name not in ALLOWED_NAMES and bool(BANNED & words_of(name))


def public_names(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> list[str]:
    """Names of a class, or of a function and its parameters."""
    if isinstance(node, ast.ClassDef):
        return [node.name]
    arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
    return [node.name, *(one.arg for one in arguments if not one.arg.startswith("_"))]


def constants(module: Iterable[ast.AST]) -> Iterator[str]:
    """Public constants of a module or class."""
    for node in module:
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and re.fullmatch("[A-Z][A-Z0-9_]*", node.id):
            yield node.id


def printed(module: Iterable[ast.AST]) -> Iterator[tuple[int, str]]:
    """String literals with their lines: messages, hints, help texts and docstrings."""
    for node in module:
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value


@pytest.mark.parametrize("folder", FOLDERS, ids=str)
def test_texts_use_the_fields_own_words(folder: Path) -> None:
    texts = [
        f"{path.relative_to(ROOT)}:{line} {found.group()}"
        for path in sorted((ROOT / folder).glob("*.py"))
        if str(path.relative_to(ROOT)) not in ALLOWED_TEXTS
        for line, text in printed(nodes(path))
        if (found := BANNED_IN_TEXTS.search(text))
    ]
    assert texts == []


def test_names_are_split_into_words_and_texts_are_searched() -> None:
    assert words_of("NotThere") == {"not", "there"}
    assert words_of("MOST_TOLD") == {"most", "told"}
    assert is_banned("tuned_gives_way")
    assert not is_banned("own_dirs")
    assert BANNED_IN_TEXTS.search("the machine type is not told")
    assert BANNED_IN_TEXTS.search("first mend what failed")
    assert not BANNED_IN_TEXTS.search("serial numbers tell them apart")


def violations(folder: Path) -> tuple[list[str], list[str]]:
    """Public names with a banned word, and public docstrings that open with a question word or pronoun."""
    names, docstrings = [], []
    for path in sorted((ROOT / folder).glob("*.py")):
        where = str(path.relative_to(ROOT))
        if is_banned(path.stem):
            names.append(where)
        names += [f"{where} {name}" for name in constants(nodes(path)) if is_banned(name)]
        for node in definitions(path):
            names += [f"{where}:{node.lineno} {name}" for name in public_names(node) if is_banned(name)]
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


def keys(module: Iterable[ast.AST]) -> Iterator[str]:
    """Names that can become keys of JSON: of literal dicts, of keyword arguments, and of fields of classes."""
    for node in module:
        if isinstance(node, ast.Dict):
            yield from (key.value for key in node.keys if isinstance(key, ast.Constant) and isinstance(key.value, str))
        elif isinstance(node, ast.keyword):
            yield node.arg or ""
        elif isinstance(node, ast.ClassDef):
            fields = [line.target for line in node.body if isinstance(line, ast.AnnAssign)]
            yield from (field.id for field in fields if isinstance(field, ast.Name) and not field.id.startswith("_"))


@pytest.mark.parametrize("folder", FOLDERS, ids=str)
def test_no_key_of_a_report_has_a_banned_word(folder: Path) -> None:
    named = {key for path in (ROOT / folder).glob("*.py") for key in keys(nodes(path))}
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
        for node in nodes(path)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    ]
    banned = Counter(name for name in names if name in BANNED)
    assert banned.total() < len(names) / 100, banned
