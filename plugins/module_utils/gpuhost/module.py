"""The engine as an Ansible module: arguments in, one visit, exit_json."""

from __future__ import annotations

from typing import Any

from .api import visit
from .verdict import failures, needs_reboot


def answer(module: Any, action: str) -> None:
    """Carry out an action with a module's arguments and end the module."""
    asked = dict(module.params)
    told = visit({**asked, "action": action, "check": module.check_mode})
    if "error" in told:
        module.fail_json(msg=f"{told['error']['wrong']} ({told['error']['hint']})")
    knobs = told["knobs"]
    due = [k for k in knobs if k["changed"] or (module.check_mode and k["state"] == "differs")]
    result = {
        **told,
        "record": told["record"] or "",
        "changed": bool(due),
        "reboot_required": needs_reboot(knobs),
    }
    if module._diff:  # noqa: SLF001 - Ansible has no public name for it
        result["diff"] = diff(due)
    wrong = failures(knobs, strict=bool(asked.get("strict")))
    if wrong:
        module.fail_json(msg="; ".join(f"{k['knob']}: {k['reason'] or k['state']}" for k in wrong), **result)
    module.exit_json(**result)


def diff(knobs: list[dict[str, Any]]) -> dict[str, str]:
    """Ansible's before and after, a line a setting."""
    return {
        side: "".join(f"{step['setting']}: {step[side]}\n" for knob in knobs for step in knob["steps"])
        for side in ("before", "after")
    }
