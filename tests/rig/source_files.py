"""Read what Python files import without running them."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PLUGINS = ROOT / "plugins"


def python_files(folder: Path) -> list[Path]:
    """Every Python file of a folder; never none, because a check over nothing would pass."""
    found = sorted(folder.rglob("*.py"))
    assert found, f"no Python files in {folder}"
    return found


@functools.cache
def tree(path: Path) -> ast.Module:
    """The syntax tree of a file; several contracts look at each."""
    return ast.parse(path.read_text(), path.name)


@functools.cache
def nodes(path: Path) -> tuple[ast.AST, ...]:
    """Every node of a file's syntax tree, in the order of `ast.walk`, which takes longer than most contracts do."""
    return tuple(ast.walk(tree(path)))


def nodes_of(code: str) -> tuple[ast.AST, ...]:
    """Every node of the syntax tree of a text."""
    return tuple(ast.walk(ast.parse(code)))


def imports(path: Path) -> Iterator[str]:
    """The full name of each module that a file imports from elsewhere; its own package's are left out."""
    for node in nodes(path):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield node.module or ""


def imported_names(nodes: Iterable[ast.AST]) -> Iterator[tuple[int, str, str]]:
    """(line, module, name) of each import. `from package import module` has no name; relative ones keep their dots."""
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            for alias in node.names:
                inner = f"{module}.{alias.name}"
                yield (node.lineno, inner, "") if _is_module(inner) else (node.lineno, module, alias.name)


def _is_module(name: str) -> bool:
    if name.startswith("."):
        return False
    path = ROOT / name.replace(".", "/")
    return path.is_dir() or path.with_suffix(".py").is_file()


def importers(folder: Path, package: str) -> list[str]:
    """The files of a folder that import a package or a part of it, relative to the repository."""
    return [
        str(path.relative_to(ROOT))
        for path in python_files(folder)
        if package in path.read_text()
        and any(name == package or name.startswith(f"{package}.") for name in imports(path))
    ]
