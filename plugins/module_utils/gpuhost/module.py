"""Arguments and results of the Ansible modules and action plugins that call the engine."""

from __future__ import annotations

from typing import Any

from .verdict import failures, needs_reboot

# What a run has to say if it could not complete its record; the fields are those of the answer.
INCOMPLETE_RECORD = "the changes were made, but their record {record} is incomplete: {unrecorded}"
INCOMPLETE_HINT = "make room on its disk; rollback works nevertheless, and the next run writes records again"

ARGUMENTS: dict[str, dict[str, dict[str, Any]]] = {
    "gpu_stack": {
        "stack": {"type": "dict", "required": True},
        "parts": {
            "type": "list",
            "elements": "str",
            "choices": ["driver", "fabric", "toolkit", "dcgm", "efa", "rdma", "nccl_tests"],
            "required": True,
        },
        "actor": {"type": "str", "default": ""},
    },
    "tune": {
        "profile": {"type": "raw", "required": True},
        "scope": {"type": "str", "default": "profile"},
        "allow_busy": {"type": "bool", "default": False},
        "strict": {"type": "bool", "default": False},
        "actor": {"type": "str", "default": ""},
    },
    "undo": {
        "to": {"type": "str", "default": ""},
        "only": {"type": "list", "elements": "str", "default": []},
        "force": {"type": "bool", "default": False},
        "scope": {"type": "str", "default": ""},
        "allow_busy": {"type": "bool", "default": False},
        "actor": {"type": "str", "default": ""},
    },
}


def result(answer: dict[str, Any], *, check: bool, strict: bool, with_diff: bool) -> dict[str, Any]:
    """The task result for an answer of the engine; `failed` and `msg` if a knob failed."""
    if "error" in answer:
        return {
            "failed": True,
            "msg": f"{answer['error']['wrong']} ({answer['error']['hint']})",
            "error": answer["error"],
        }
    knobs = answer["knobs"]
    due = [k for k in knobs if k["changed"] or (check and k["state"] == "differs")]
    outcome = {**answer, "record": answer["record"] or "", "changed": bool(due), "reboot_required": needs_reboot(knobs)}
    if with_diff:
        outcome["diff"] = _diff(due)
    wrong = failures(knobs, strict=strict)
    if wrong:
        outcome["failed"] = True
        outcome["msg"] = "; ".join(f"{k['knob']}: {k['reason'] or k['state']}" for k in wrong)
    if answer.get("unrecorded"):
        outcome["failed"] = True
        outcome["msg"] = "; ".join(filter(None, [INCOMPLETE_RECORD.format(**answer), outcome.get("msg")]))
    return outcome


def _diff(knobs: list[dict[str, Any]]) -> dict[str, str]:
    """Ansible's before and after, one line per setting."""
    return {
        side: "".join(f"{step['setting']}: {step[side]}\n" for knob in knobs for step in knob["steps"])
        for side in ("before", "after")
    }
