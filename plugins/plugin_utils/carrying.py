"""What the action plugins share: run the module of the same name, and leave nothing behind when its time is over."""

from __future__ import annotations

import getpass
import os
import signal
from collections.abc import Callable, Mapping
from typing import Any


def carry(
    execute: Callable[..., dict[str, Any]], arguments: Mapping[str, Any], task_vars: dict[str, Any] | None
) -> dict[str, Any]:
    """The module's result; who asks is filled in where nobody is named."""
    by = arguments.get("by") or f"{getpass.getuser()}@{os.uname().nodename}"
    try:
        return execute(module_args={**arguments, "by": by}, task_vars=task_vars)
    except BaseException:
        _end_what_we_started()
        raise


def _end_what_we_started() -> None:
    """When a task's time is over Ansible ends its worker alone: the ssh client would wait for the host for ever."""
    if os.getpgrp() == os.getpid():  # of an older Ansible the worker is in the group of the whole playbook
        before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
        os.killpg(os.getpgrp(), signal.SIGTERM)
        signal.signal(signal.SIGTERM, before)
