"""Code that decides does no I/O: it opens no files, starts no threads and programs, and reads no clock."""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contracts.sources import ROOT, imports, tree

CONTRACT = "Decisions are pure: they reach no edge, not even through others"
# Modules whose import means I/O, threads, time or chance.
IMPURE = frozenset(
    [
        "asyncio",
        "fcntl",
        "getpass",
        "glob",
        "http",
        "io",
        "multiprocessing",
        "os",
        "pty",
        "queue",
        "random",
        "requests",
        "select",
        "selectors",
        "shutil",
        "socket",
        "ssl",
        "subprocess",
        "sys",
        "tempfile",
        "termios",
        "threading",
        "time",
        "urllib3",
    ]
)
METHODS = frozenset(
    [
        "read_text",
        "write_text",
        "read_bytes",
        "write_bytes",
        "mkdir",
        "unlink",
        "iterdir",
        "rglob",
        "is_file",
        "is_dir",
        "touch",
        "rmdir",
        "expanduser",
        "home",
        "cwd",
        "now",
        "today",
        "utcnow",
    ]
)
FUNCTIONS = frozenset(["open", "input", "print", "exec", "eval"])
# Files of a pure package that read or write what the package decides on.
READERS = frozenset(
    [
        "gpuctl/nccl/isolate/record.py",  # the record of an isolation
        "gpuctl/nccl/preflight/facts_file.py",  # facts that were saved
        "gpuctl/nccl/topology/racks.py",  # Slurm's or EC2's topology file
        "gpuctl/nodes/facts_file.py",  # facts that were saved
        "gpuctl/nodes/readings_file.py",  # readings of earlier runs
    ]
)


def pure_files() -> list[Path]:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    [modules] = [contract["source_modules"] for contract in contracts if contract["name"] == CONTRACT]
    files: set[Path] = set()
    for module in modules:
        path = ROOT / module.replace(".", "/")
        files |= set(path.rglob("*.py")) if path.is_dir() else {path.with_suffix(".py")}
    return sorted(path for path in files if str(path.relative_to(ROOT)) not in READERS)


def impurities(path: Path) -> Iterator[str]:
    yield from (f"imports {name}" for name in imports(path) if name.partition(".")[0] in IMPURE)
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in FUNCTIONS:
            yield f"line {node.lineno}: {node.func.id}()"
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in METHODS:
            yield f"line {node.lineno}: .{node.func.attr}()"


@pytest.mark.parametrize("path", pure_files(), ids=lambda path: str(path.relative_to(ROOT / "gpuctl")))
def test_a_file_that_decides_does_no_io(path: Path) -> None:
    assert list(impurities(path)) == []


def test_every_reader_that_is_excepted_exists_and_needs_it() -> None:
    assert [name for name in READERS if not list(impurities(ROOT / name))] == []
