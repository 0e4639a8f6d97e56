"""The contributor's page names only files and folders that exist."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/contributing.md").read_text()
# Code in backticks with a slash and only the characters of paths, braces for alternatives and <group> for any folder.
PATH = re.compile(r"`((?:[\w.-]+|\{[\w,]+\}|<\w+>)(?:/(?:[\w.-]+|\{[\w,]+\}|<\w+>))*/?)`")
FOLDERS = re.compile(r"`(gpuctl/\w+/)\w+/`((?:, `\w+/`)+)")


def alternatives(path: str) -> Iterator[str]:
    """`a/{b,c}/` stands for a/b/ and a/c/."""
    parts = [part[1:-1].split(",") if part.startswith("{") else [part] for part in re.split(r"(\{[^}]*\})", path)]
    yield from ("".join(choice) for choice in product(*parts))


def siblings() -> Iterator[str]:
    """`gpuctl/nccl/parsing/`, `judge/`: the following names are folders beside the first."""
    for parent, names in FOLDERS.findall(PAGE):
        yield from (parent + name for name in re.findall(r"`(\w+/)`", names))


def named() -> list[str]:
    known = {path.name for path in ROOT.iterdir()}
    paths = {path for text in PATH.findall(PAGE) for path in alternatives(text) if path.split("/")[0] in known}
    return sorted({path.replace("<group>", "*") for path in paths if "/" in path} | set(siblings()))


@pytest.mark.parametrize("path", named())
def test_every_path_on_the_page_exists(path: str) -> None:
    assert list(ROOT.glob(path.rstrip("/"))), path


def test_the_glossary_explains_each_term_once_in_alphabetical_order() -> None:
    rows = PAGE.partition("## Glossary")[2].partition("\n## ")[0].splitlines()
    terms = [row.split("|")[1].strip().lower() for row in rows if row.startswith("| ")][1:]
    assert len(terms) >= 60
    assert terms == sorted(set(terms))
