"""The table of a run that changes hosts."""

from __future__ import annotations

import pytest

from gpuctl.cli.hosts import report
from gpuctl.hosts.model import HostResult


def knob(name: str, state: str, *notes: str) -> dict[str, object]:
    """A knob of an answer that is to be changed, with what is to be known beforehand."""
    row = {"knob": name, "state": state, "now": "absent", "boot": None, "desired": "1.48.0 full", "changed": False}
    return {**row, "notes": list(notes), "steps": [], "restores": False}


def test_notes_of_a_change_stand_below_it_and_those_of_others_do_not(capsys: pytest.CaptureFixture[str]) -> None:
    lost = "rollback may not put back what the installer replaces: rdma-core 50.0-2"
    knobs = [knob("gpu_stack.efa", "differs", lost), knob("gpu_stack.dcgm", "ok", "held")]
    report._changes([HostResult("n1", {"knobs": knobs})], {}, diff=False)
    assert capsys.readouterr().out == f"n1:\n  gpu_stack.efa: absent -> 1.48.0 full\n      note: {lost}\n\n"
