"""Code that decides does no I/O: it opens no files, starts no threads and programs, and reads no clock.

A pure file imports only pure files and modules of the standard library that are listed here as pure, so that whatever
it calls is pure, too.
"""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from tests.rig.source_files import ROOT, imported_names, nodes, nodes_of

CONTRACT = "Decisions are pure: they reach no edge, not even through others"
# Modules of the standard library that do no I/O. pathlib builds names; its methods that look at a disk are below.
LIBRARY = frozenset(
    [
        "__future__",
        "base64",
        "bisect",
        "collections",
        "contextlib",
        "copy",
        "csv",
        "dataclasses",
        "datetime",
        "decimal",
        "difflib",
        "enum",
        "fractions",
        "functools",
        "hashlib",
        "html",
        "ipaddress",
        "itertools",
        "json",
        "math",
        "operator",
        "pathlib",
        "re",
        "shlex",
        "statistics",
        "string",
        "textwrap",
        "types",
        "typing",
        "urllib.parse",
        "xml.etree",
    ]
)
# What a pure file may import from a module that does I/O elsewhere, or that knows nothing of purity.
NAMES = {
    "gpuctl.core.strict_yaml": "ANY_TEXT NULLS SWITCHES At Choice EmptyFile FieldType Flag ListOf MappingOf Mistakes "
    "Node Parsed Schema Section Text Whole did_you_mean refuse_unknown",
    "gpuctl.engine": "MISSING MpirunRequest cpus_of fact_types failures full_command gpu_use gpu_xml gpus_per_process "
    "lustre needs_reboot nvlink typed_json",
    "gpuctl.workstation.tools_file": "SYSTEMS",
    "secrets": "token_urlsafe",  # a new password; no decision depends on its value
    "signal": "NSIG Signals",  # names of signals
}
# Files that parse or write YAML text with the library.
YAML = frozenset(
    ["gpuctl/cluster/discover/draft_yaml.py", "gpuctl/cluster/manifests/as_yaml.py", "gpuctl/kube/merge.py"]
)
METHODS = frozenset(
    [
        # of Path
        "absolute",
        "chmod",
        "cwd",
        "exists",
        "expanduser",
        "glob",
        "hardlink_to",
        "home",
        "is_block_device",
        "is_dir",
        "is_fifo",
        "is_file",
        "is_mount",
        "is_socket",
        "is_symlink",
        "iterdir",
        "lchmod",
        "lstat",
        "mkdir",
        "open",
        "owner",
        "read_bytes",
        "read_text",
        "readlink",
        "rename",
        "resolve",
        "rglob",
        "rmdir",
        "samefile",
        "stat",
        "symlink_to",
        "touch",
        "unlink",
        "write_bytes",
        "write_text",
        # of date and datetime
        "now",
        "today",
        "utcnow",
    ]
)
FUNCTIONS = frozenset(["__import__", "breakpoint", "compile", "eval", "exec", "input", "open", "print"])
# Files of a pure package that read or write what the package decides on.
READERS = frozenset(
    [
        "gpuctl/nccl/isolate/record.py",  # the record of an isolation
        "gpuctl/nccl/judge/run.py",  # the shipped and the site's baselines, if the caller gives none
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
    return sorted(path for path in files if _name(path) not in READERS)


def _name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def _module(path: Path) -> str:
    return _name(path).removesuffix(".py").removesuffix("/__init__").replace("/", ".")


PURE = frozenset(map(_module, pure_files()))


def impurities(code: Iterable[ast.AST], file: str = "") -> Iterator[str]:
    """Everything in the nodes of a file that does I/O or may lead to it."""
    for line, module, name in imported_names(code):
        if not _is_pure(module, name) and not (module == "yaml" and file in YAML):
            yield f"line {line}: imports {module} {name}".rstrip()
    for node in code:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in FUNCTIONS:
            yield f"line {node.lineno}: {node.func.id}()"
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in METHODS:
            yield f"line {node.lineno}: .{node.func.attr}()"
        if isinstance(node, ast.Attribute) and node.attr in METHODS and ast.unparse(node.value).endswith("Path"):
            yield f"line {node.lineno}: Path.{node.attr}"


def _is_pure(module: str, name: str) -> bool:
    if name in NAMES.get(module, "").split():
        return True
    if module.startswith("gpuctl"):
        return module in PURE
    return any(module == one or module.startswith(f"{one}.") for one in LIBRARY)


@pytest.mark.parametrize("path", pure_files(), ids=lambda path: str(path.relative_to(ROOT / "gpuctl")))
def test_a_file_that_decides_does_no_io(path: Path) -> None:
    assert list(impurities(nodes(path), _name(path))) == []


def test_every_reader_that_is_excepted_exists_and_needs_it() -> None:
    assert [name for name in READERS if not list(impurities(nodes(ROOT / name)))] == []
    assert [name for name in YAML if not list(impurities(nodes(ROOT / name)))] == []


@pytest.mark.parametrize(
    "planted",
    [
        "from gpuctl.core import paths",
        "from gpuctl.core import run_history",
        "from gpuctl.core.paths import state_dir",
        "import gpuctl.core.paths",
        "import gpuctl.core.text, gpuctl.core.settings",
        "from gpuctl.core import text, signals",
        "from gpuctl.core.strict_yaml import load_file",
        "from gpuctl.core import strict_yaml",
        "from gpuctl.engine import profiles",
        "from gpuctl import engine",
        "import gpuctl",
        "from gpuctl.nccl import history",
        "from gpuctl.nccl.baselines import load",
        "from gpuctl.edges import slurm",
        "from .history import latest",
        "from . import paths",
        "from ansible_collections.gpuctl.fleet.plugins.module_utils import gpuhost",
        "import urllib.request",
        "import urllib",
        "from urllib import request",
        "from urllib.request import urlopen",
        "import ftplib",
        "import smtplib",
        "import socketserver",
        "import pty",
        "import os",
        "from os import system",
        "import importlib",
        "import yaml",
        "from yaml import safe_load",
        "import secrets",
        "def f(p):\n    import os\n    os.system('true')",
        "__import__('os').system('true')",
        "open('/etc/hosts')",
        "Path('/etc').open()",
        "Path('/etc').exists()",
        "Path('/etc').glob('*')",
        "Path('/etc').iterdir()",
        "Path('/etc').stat()",
        "Path('/etc').resolve()",
        "paths.map(Path.exists)",
        "paths.map(pathlib.Path.read_text)",
        "datetime.now()",
    ],
)
def test_io_planted_in_a_pure_file_is_found(planted: str) -> None:
    assert len(list(impurities(nodes_of(planted), "gpuctl/nccl/plan.py"))) >= 1


@pytest.mark.parametrize(
    "harmless",
    [
        "from gpuctl.core import text",
        "from gpuctl.core.strict_yaml import Text",
        "from gpuctl.engine import cpus_of",
        "from urllib.parse import quote",
        "from pathlib import Path\nname = Path('/etc') / 'hosts'",
        "from collections.abc import Mapping",
    ],
)
def test_code_without_io_is_pure(harmless: str) -> None:
    assert list(impurities(nodes_of(harmless))) == []
