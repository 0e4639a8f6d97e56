"""What Ansible gives the engine and gets from it: the same for the modules and for the action plugins."""

from __future__ import annotations

from typing import Any

from .verdict import failures, needs_reboot

ARGUMENTS: dict[str, dict[str, dict[str, Any]]] = {
    "tune": {
        "profile": {"type": "raw", "required": True},
        "scope": {"type": "str", "default": "profile"},
        "allow_busy": {"type": "bool", "default": False},
        "strict": {"type": "bool", "default": False},
        "by": {"type": "str", "default": ""},
    },
    "undo": {
        "to": {"type": "str", "default": ""},
        "only": {"type": "list", "elements": "str", "default": []},
        "force": {"type": "bool", "default": False},
        "scope": {"type": "str", "default": ""},
        "allow_busy": {"type": "bool", "default": False},
        "by": {"type": "str", "default": ""},
    },
}


def result(told: dict[str, Any], *, check: bool, strict: bool, with_diff: bool) -> dict[str, Any]:
    """A task's result of the engine's answer; `failed` with `msg` where something went wrong."""
    if "error" in told:
        return {"failed": True, "msg": f"{told['error']['wrong']} ({told['error']['hint']})", "error": told["error"]}
    knobs = told["knobs"]
    due = [k for k in knobs if k["changed"] or (check and k["state"] == "differs")]
    found = {**told, "record": told["record"] or "", "changed": bool(due), "reboot_required": needs_reboot(knobs)}
    if with_diff:
        found["diff"] = _diff(due)
    wrong = failures(knobs, strict=strict)
    if wrong:
        found["failed"] = True
        found["msg"] = "; ".join(f"{k['knob']}: {k['reason'] or k['state']}" for k in wrong)
    return found


def _diff(knobs: list[dict[str, Any]]) -> dict[str, str]:
    """Ansible's before and after, a line a setting."""
    return {
        side: "".join(f"{step['setting']}: {step[side]}\n" for knob in knobs for step in knob["steps"])
        for side in ("before", "after")
    }
