"""Plan the software stack of a host on the controller, then let the engine carry it out: up to three short visits."""

from __future__ import annotations

import getpass
import os
from collections.abc import Mapping
from datetime import datetime
from importlib import import_module
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.module import ARGUMENTS, result
from ansible_collections.gpuctl.fleet.plugins.plugin_utils import answers
from ansible_collections.gpuctl.fleet.plugins.plugin_utils.action_base import HostVisitAction, NoAnswerError

# By name, as the collection is a layer below the package: only these modules need it, and say so if it is missing.
DECISIONS = "gpuctl.workflows.gpu_node_role"


def _decisions() -> Any:
    try:
        return import_module(DECISIONS)
    except ImportError as error:
        hint = "install gpuctl in the Python that runs Ansible"
        raise AnsibleActionFail(f"gpuctl decides the stack, and is not installed: {error} ({hint})") from error


class ActionModule(HostVisitAction):
    """Reads the facts, lets the host resolve the packages, and sends the plan."""

    action = "tune"

    def run(self, tmp: None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        ActionBase.run(self, tmp, task_vars)
        _, arguments = self.validate_argument_spec(ARGUMENTS["gpu_stack"])
        if self._task.delegate_to or not self._is_pipelining_enabled("new", wrap_async=bool(self._task.async_val)):
            hint = "set pipelining = True below [ssh_connection] in ansible.cfg, and do not delegate this task"
            raise AnsibleActionFail(f"this task needs a connection with pipelining ({hint})")
        self._detect_dead_hosts()
        try:
            outcome = self._carried_out(arguments, task_vars or {})
        except NoAnswerError as error:
            return error.outcome
        return answers.packed(outcome) if answers.AS_TEXT in os.environ else outcome

    def _carried_out(self, arguments: Mapping[str, Any], task_vars: Mapping[str, Any]) -> dict[str, Any]:
        decisions, check = _decisions(), bool(self._task.check_mode)
        actor = arguments["actor"] or f"{getpass.getuser()}@{os.uname().nodename}"
        today = datetime.now().astimezone().date()
        name = str(task_vars.get("inventory_hostname", ""))
        try:
            task = decisions.task(name, arguments["stack"], arguments["parts"], today)
        except ValueError as error:
            raise AnsibleActionFail(str(error)) from error
        stack = self._facts(decisions.facts_request(task), task_vars)["stack"]
        if decisions.interrupted(stack) and not check:
            self._answered({"action": "repair", "actor": actor, "check": False}, task_vars)
            stack = self._facts(decisions.facts_request(task), task_vars)["stack"]
        question = decisions.transaction_request(task, stack)
        resolved = self._facts(question, task_vars)["transaction"] if question else None
        plan = decisions.tune_request(task, stack, resolved)
        notes = plan.pop("notes")
        request = {"action": "tune", "check": check, "actor": actor, **plan}
        outcome = result(self._answered(request, task_vars), check=check, strict=False, with_diff=bool(self._task.diff))
        return {**outcome, "warnings": notes} if notes else outcome

    def _facts(self, request: Mapping[str, Any], task_vars: Mapping[str, Any]) -> dict[str, Any]:
        return dict(self._answered(request, task_vars)["facts"])

    def _answered(self, request: Mapping[str, Any], task_vars: Mapping[str, Any]) -> dict[str, Any]:
        """The engine's answer; `NoAnswerError` if the host refuses the request."""
        answer = self._visit(request, task_vars)
        if "error" in answer:
            raise NoAnswerError(result(answer, check=False, strict=False, with_diff=False))
        return answer
