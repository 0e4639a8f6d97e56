"""Only an edge starts programs or opens connections, and what else does is listed here with its reason.

import-linter knows modules, so that it cannot tell os.system from os.path, nor urllib.request from urllib.parse.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from tests.rig.source_files import PLUGINS, ROOT, imported_names, nodes, nodes_of, python_files

# Functions of os and pty that start a program or a process.
STARTS = re.compile(r"exec[lv]p?e?|fork|forkpty|popen|posix_spawnp?|spawn([lv]p?e?)?|startfile|system")
NETWORK = frozenset(
    ["urllib", "urllib.request", "http", "ftplib", "imaplib", "poplib", "smtplib", "socketserver", "xmlrpc"]
)
EXCEPTED = {
    "gpuctl/cluster/probe/pod/run_programs.py",  # in a pod: each program under test in a process of its own
    "gpuctl/remote/supervisor/detached.py",  # in a pod: the part that outlives the connection
    "gpuctl/remote/supervisor/process.py",  # in a pod: the program that is supervised
    "gpuctl/tmux/launch.py",  # the terminal becomes tmux
    "plugins/module_utils/gpuhost/exec.py",  # gpuctl-exec: its process becomes the tuned program
    "plugins/module_utils/gpuhost/facts/storage_load.py",  # on a host: reads that may hang, in a child to leave behind
    "plugins/module_utils/gpuhost/facts/system.py",  # on a host: the kubelet's own address is asked
    "plugins/module_utils/launch/start.py",  # on a host: mpirun outlives the ssh connection
    "plugins/module_utils/workstation/fetch.py",  # on a workstation: downloads that have a pin
}


def outside_calls(code: Iterable[ast.AST]) -> Iterator[str]:
    """Each import and each use of a name by which code starts a program or opens a connection."""
    for line, module, name in imported_names(code):
        if any(one == module or module.startswith(f"{one}.") for one in NETWORK - {"urllib"}):
            yield f"line {line}: {module}"
        if (module == "urllib" and name in ("", "request")) or (module in ("os", "pty") and STARTS.fullmatch(name)):
            yield f"line {line}: {module} {name}"
    for node in code:
        if isinstance(node, ast.Attribute) and STARTS.fullmatch(node.attr) and ast.unparse(node.value) in ("os", "pty"):
            yield f"line {node.lineno}: {ast.unparse(node)}"


def _files() -> list[Path]:
    """The files outside edges that name a module in question at all; the others need not be parsed."""
    edges, named = ROOT / "gpuctl/edges", re.compile(rf"\b(import|from) .*\b(os|pty|{'|'.join(NETWORK)})\b")
    files = [path for path in python_files(ROOT / "gpuctl") if edges not in path.parents]
    return [path for path in [*files, *python_files(PLUGINS)] if named.search(path.read_text())]


def test_only_edges_start_programs_or_open_connections() -> None:
    assert {str(path.relative_to(ROOT)) for path in _files() if list(outside_calls(nodes(path)))} == EXCEPTED


@pytest.mark.parametrize(
    "planted",
    [
        "import os\nos.system('true')",
        "import os\nos.popen('true')",
        "import os\nos.execvp('true', ['true'])",
        "import os\nos.spawnlp(os.P_WAIT, 'true')",
        "import os\nos.posix_spawn('/bin/true', [], {})",
        "import os\nos.fork()",
        "import os\nstart = os.system",
        "from os import system",
        "import pty\npty.spawn('sh')",
        "from pty import fork",
        "import urllib",
        "import urllib.request",
        "from urllib import request",
        "from urllib.request import urlopen",
        "import http.client",
        "from http import server",
        "import ftplib",
        "import smtplib",
        "from socketserver import TCPServer",
    ],
)
def test_a_planted_start_or_connection_is_found(planted: str) -> None:
    assert list(outside_calls(nodes_of(planted))) != []


@pytest.mark.parametrize("harmless", ["import os\nos.path.exists('/')", "from urllib.parse import quote", "import sys"])
def test_other_uses_of_the_same_modules_are_allowed(harmless: str) -> None:
    assert list(outside_calls(nodes_of(harmless))) == []
