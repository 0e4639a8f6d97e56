"""What the action plugins share: one visit to the host over Ansible's connection, and nothing left behind after it."""

from __future__ import annotations

import getpass
import json
import os
import secrets
import shlex
import signal
from collections.abc import Mapping
from typing import Any

from ansible import constants
from ansible.errors import AnsibleConnectionFailure
from ansible.plugins.action import ActionBase
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.module import ARGUMENTS, result
from ansible_collections.gpuctl.fleet.plugins.plugin_utils import answers
from ansible_collections.gpuctl.fleet.plugins.plugin_utils.payload import any_python, script


class Carrier(ActionBase):  # type: ignore[misc]  # ansible-core has no types
    """Carries the engine to the host: streamed over the open connection, or as the module of the same name.

    Ansible's way for a module takes a host three times as long as the engine itself: it unpacks and compiles all that
    modules may need. So where the connection can feed a program its input (pipelining), the engine goes in by it.
    """

    action = ""  # tune or undo

    def run(self, tmp: None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        super().run(tmp, task_vars)
        asked = self.asked()
        asked["by"] = asked["by"] or f"{getpass.getuser()}@{os.uname().nodename}"
        try:
            if self._task.delegate_to or not self._is_pipelining_enabled("new", wrap_async=bool(self._task.async_val)):
                found: dict[str, Any] = self._execute_module(module_args=asked, task_vars=task_vars)
                return found
            return self._stream(asked, task_vars or {})
        except BaseException:
            _end_what_we_started()
            raise

    def asked(self) -> dict[str, Any]:
        """The task's arguments, checked and with their defaults."""
        _, arguments = self.validate_argument_spec(ARGUMENTS[self.action])
        return dict(arguments)

    def _stream(self, asked: Mapping[str, Any], task_vars: Mapping[str, Any]) -> dict[str, Any]:
        check = bool(self._task.check_mode)
        token = f"gpuctl-{secrets.token_hex(8)} "
        program = script(json.dumps({**asked, "action": self.action, "check": check}), token)
        try:
            said = self._low_level_execute_command(self._start(task_vars), in_data=program)
        except AnsibleConnectionFailure:
            # ssh may have ended before it took all of our program. With nothing to send Ansible tells why.
            self._low_level_execute_command(":", sudoable=False)
            raise
        try:
            answer = answers.find(said["stdout"].encode(errors="surrogateescape"), token, self.action)
        except answers.BadAnswer as error:
            reason = str(error)
            if reason == answers.NO_ANSWER:
                reason = _why(said["stderr"] or said["stdout"])
            streams = {"module_stdout": said["stdout"], "module_stderr": said["stderr"], "rc": said["rc"]}
            return {"failed": True, "msg": reason, **streams}
        return result(answer, check=check, strict=bool(asked.get("strict")), with_diff=bool(self._task.diff))

    def _start(self, task_vars: Mapping[str, Any]) -> str:
        named = constants.config.get_config_value("INTERPRETER_PYTHON", variables=task_vars)
        python = str(self._templar.template(named))
        # "auto" and its kind ask Ansible to look for one, which costs a trip of its own.
        return any_python() if python.startswith("auto") else shlex.join([*shlex.split(python), "-IS", "-"])


def _why(said: str) -> str:
    if "gpuctl-no-python" in said:
        return "it has no Python (install python3 there)"
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    return lines[-1] if lines else answers.NO_ANSWER


def _end_what_we_started() -> None:
    """When a task's time is over Ansible ends its worker alone: the ssh client would wait for the host for ever."""
    if os.getpgrp() == os.getpid():  # of an older Ansible the worker is in the group of the whole playbook
        before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
        os.killpg(os.getpgrp(), signal.SIGTERM)
        signal.signal(signal.SIGTERM, before)
