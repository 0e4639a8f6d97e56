"""The command line of a program that is being written."""

from __future__ import annotations

import pytest

from gpuctl.cluster.dev.program import ScriptRun, argv
from gpuctl.core.errors import InvalidInput


def test_python_runs_python_and_other_programs_run_by_themselves() -> None:
    assert argv(ScriptRun("src/train.py", ["--lr", "1"])) == ["python3", "src/train.py", "--lr", "1"]
    assert argv(ScriptRun("run.sh", ["x"])) == ["./run.sh", "x"]


def test_the_debugger_listens_inside_the_pod_alone() -> None:
    words = argv(ScriptRun("train.py", ["x"], debug=5679))
    assert words[2:] == ["-m", "debugpy", "--listen", "127.0.0.1:5679", "train.py", "x"]
    waits = argv(ScriptRun("train.py", debug=5679, wait=True))
    assert waits[-2:] == ["--wait-for-client", "train.py"]


def test_what_is_no_python_cannot_be_debugged() -> None:
    with pytest.raises(InvalidInput, match="it is not a Python file"):
        argv(ScriptRun("run.sh", debug=5678))
