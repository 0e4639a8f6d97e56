"""Base of the action plugins: one visit to a host over Ansible's connection, without leaving files there."""

from __future__ import annotations

import getpass
import json
import os
import re
import secrets
import shlex
import signal
from collections.abc import Mapping
from typing import Any

from ansible import constants
from ansible.errors import AnsibleConnectionFailure
from ansible.plugins.action import ActionBase
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.module import ARGUMENTS, result
from ansible_collections.gpuctl.fleet.plugins.plugin_utils import answers, visit_failures
from ansible_collections.gpuctl.fleet.plugins.plugin_utils.memory_guard import TooMuchMemoryError, bounded_memory
from ansible_collections.gpuctl.fleet.plugins.plugin_utils.payload import any_python, packed_engine, script

# Bytes that a worker may take up for the output of a host; a host's answer needs a few MiB.
MOST_MEMORY = 2 * visit_failures.MOST_OUTPUT
# With "SSH", the program on the host ended before it read all its input.
DATA_NOT_SENT = re.compile(r"^.*Make sure this host can be reached over (ssh:|SSH\.)", re.DOTALL)
KEEP_ALIVE = "-o ServerAliveInterval=15 -o ServerAliveCountMax=3 -o ControlPath=none"


# Ansible imports this file before it forks a worker for each host: the engine is packed once, and they inherit it.
packed_engine()


class NoAnswerError(Exception):
    """The host gave no answer; `outcome` is the result of the task."""

    def __init__(self, outcome: dict[str, Any]) -> None:
        super().__init__(str(outcome.get("msg", "")))
        self.outcome = outcome


class HostVisitAction(ActionBase):  # type: ignore[misc]  # ansible-core has no types
    """Runs the engine on the host: streamed over the open connection, or as the module of the same name.

    A module takes three times as long as the engine itself, as the host unpacks and compiles all module utilities. So
    the engine is streamed if the connection supports input (pipelining).
    """

    action = ""  # tune or undo

    def run(self, tmp: None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        super().run(tmp, task_vars)
        request = self.arguments_of_task()
        self._detect_dead_hosts()
        request["actor"] = request["actor"] or f"{getpass.getuser()}@{os.uname().nodename}"
        try:
            if self._task.delegate_to or not self._is_pipelining_enabled("new", wrap_async=bool(self._task.async_val)):
                outcome: dict[str, Any] = self._execute_module(module_args=request, task_vars=task_vars)
            else:
                outcome = self._stream(request, task_vars or {})
            return answers.packed(outcome) if answers.AS_TEXT in os.environ else outcome
        except BaseException:
            _end_children()
            raise

    def arguments_of_task(self) -> dict[str, Any]:
        """The task's arguments, checked and with defaults."""
        _, arguments = self.validate_argument_spec(ARGUMENTS[self.action])
        return dict(arguments)

    def _stream(self, request: Mapping[str, Any], task_vars: Mapping[str, Any]) -> dict[str, Any]:
        check = bool(self._task.check_mode)
        try:
            answer = self._visit({**request, "action": self.action, "check": check}, task_vars)
        except NoAnswerError as error:
            return error.outcome
        return result(answer, check=check, strict=bool(request.get("strict")), with_diff=bool(self._task.diff))

    def _visit(self, visit: Mapping[str, Any], task_vars: Mapping[str, Any]) -> dict[str, Any]:
        """The engine's answer to one request; `NoAnswerError` with the task's result if there is none."""
        token = f"gpuctl-{secrets.token_hex(8)} "
        program = script(json.dumps(visit), token)
        try:
            with bounded_memory(MOST_MEMORY):
                streams = self._low_level_execute_command(self._start(task_vars), in_data=program)
        except TooMuchMemoryError as error:
            _end_children()
            raise NoAnswerError(_failed(visit_failures.TOO_MUCH_OUTPUT, visit_failures.PRINTS_ENDLESSLY)) from error
        except AnsibleConnectionFailure as error:
            # Ansible's own sentence, then what ssh printed. ansible-core from 2.19 on strips the space between them.
            cause = DATA_NOT_SENT.sub("", str(error)).strip()
            if visit_failures.UNRESPONSIVE in cause:
                raise
            # ssh may have ended before it read all input. Without input, Ansible reports the cause.
            self._low_level_execute_command(":", sudoable=False)
            if cause:
                raise
            raise NoAnswerError(_failed(visit_failures.KILLED, visit_failures.COMPLETES)) from error
        if streams["rc"] == 128 + signal.SIGKILL:
            raise NoAnswerError(_failed(visit_failures.KILLED, visit_failures.COMPLETES))
        try:
            return answers.find(streams["stdout"].encode(errors="surrogateescape"), token, visit)
        except answers.BadAnswer as error:
            reason = str(error)
            if reason == answers.NO_ANSWER:
                reason = _why(streams["stderr"] or streams["stdout"])
            raw = {"module_stdout": streams["stdout"], "module_stderr": streams["stderr"], "rc": streams["rc"]}
            raise NoAnswerError({"failed": True, "msg": reason, **raw}) from error

    def _detect_dead_hosts(self) -> None:
        """Let ssh give up a host that dies during the task; it would wait until the task's own limit.

        The connection is a new one, as a shared one has no such limit. The user's own arguments come first and win.
        """
        if self._connection.transport == "ssh":
            arguments = self._connection.get_option("ssh_extra_args") or ""
            self._connection.set_option("ssh_extra_args", f"{arguments} {KEEP_ALIVE}".strip())

    def _start(self, task_vars: Mapping[str, Any]) -> str:
        named = constants.config.get_config_value("INTERPRETER_PYTHON", variables=task_vars)
        python = str(self._templar.template(named))
        # With "auto", Ansible would search the host for one, which takes another trip.
        if python.startswith("auto"):
            return any_python()
        words = shlex.split(python)
        # Input that nobody reads breaks the pipe, which Ansible takes for a lost connection.
        missing = f"{{ echo {shlex.quote(f'{words[0]}: not found')} >&2; cat > /dev/null; exit 127; }}"
        found = f"command -v {shlex.quote(words[0])} > /dev/null || {missing}"
        return "exec /bin/sh -c " + shlex.quote(f"{found}; exec {shlex.join([*words, '-IS', '-'])}")


def _failed(wrong: str, hint: str) -> dict[str, Any]:
    return result({"error": {"wrong": wrong, "hint": hint}}, check=False, strict=False, with_diff=False)


def _why(output: str) -> str:
    if "gpuctl-no-python" in output:
        return "it has no Python (install python3 there)"
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    return lines[-1] if lines else answers.NO_ANSWER


def _end_children() -> None:
    """End the ssh client of a task that timed out; Ansible ends only its worker, and ssh would wait forever."""
    if os.getpgrp() == os.getpid():  # older Ansible runs workers in the process group of the playbook
        before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
        os.killpg(os.getpgrp(), signal.SIGTERM)
        signal.signal(signal.SIGTERM, before)
