"""The shipped training examples run on any image's Python, under every launcher, and the image has what they need."""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

import pytest

from gpuctl.cluster.train.launch import PROGRAMS

EXAMPLES = Path("examples/training")
SCRIPTS = sorted(EXAMPLES.glob("*.py"))
PACKAGE_OF = {"ssh": "openssh-client", "pdsh": "pdsh", "sshd": "openssh-server", "ip": "iproute2"}
OF_THE_BASE = {"torch", "torchrun"}


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_a_script_needs_python_3_8_pytorch_and_at_most_deepspeed(path: Path) -> None:
    tree = ast.parse(path.read_text(), feature_version=(3, 8))
    modules = {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    modules |= {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    outside = {name.partition(".")[0] for name in modules} - sys.stdlib_module_names
    assert outside <= {"torch", "deepspeed"}


def test_the_deepspeed_script_takes_the_argument_of_deepspeeds_own_launcher() -> None:
    assert '"--local_rank"' in (EXAMPLES / "train_zero.py").read_text()


def test_the_image_has_every_launchers_programs() -> None:
    text = (EXAMPLES / "Dockerfile").read_text()
    installed = set(re.findall(r"[a-z][a-z0-9-]+", text))
    needed = {program for programs in PROGRAMS.values() for program in programs} - OF_THE_BASE
    assert {PACKAGE_OF.get(program, program) for program in (*needed, "sshd", "ip")} <= installed
    assert "ENTRYPOINT" not in text
    assert re.search(r"^FROM \$\{BASE\}$", text, re.MULTILINE)
