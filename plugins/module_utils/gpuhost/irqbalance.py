"""irqbalance on a host, read from files: installed, enabled, running, and its arguments."""

from __future__ import annotations

import re

from .host import Host
from .resources.unit import FOLDERS

SERVICE = "irqbalance.service"
DROP_INS = f"/etc/systemd/system/{SERVICE}.d"
OURS = f"{DROP_INS}/50-gpuctl.conf"
ARGUMENT_FILES = ("/etc/default/irqbalance", "/etc/sysconfig/irqbalance")
# systemd keeps this link, dangling on purpose, while a unit is not inactive.
RUNNING = f"/run/systemd/units/invocation:{SERVICE}"


def unit_file(host: Host) -> str | None:
    """Path of its unit file; None if irqbalance is not installed."""
    return next((path for folder in FOLDERS if host.exists(path := f"{folder}/{SERVICE}")), None)


def switched_on(host: Host) -> str:
    """The link that starts it at boot; empty if there is none."""
    return next(iter(host.glob(f"/etc/systemd/system/*.wants/{SERVICE}")), "")


def runs(host: Host) -> bool:
    return bool(host.glob(RUNNING))


def command(host: Host, unit: str) -> str:
    """Command line from the unit and its drop-ins, without ours."""
    paths = [unit, *(path for path in host.glob(f"{DROP_INS}/*.conf") if path != OURS)]
    lines = re.findall(r"^ExecStart=(.+)$", "\n".join(host.read(path) for path in paths), re.MULTILINE)
    return str(lines[-1]).strip() if lines else ""


def knows_hint_policies(host: Host, command: str) -> bool:
    """True if this irqbalance accepts --hintpolicy; versions since 2017 fail to start with it."""
    program = command.split(maxsplit=1)[0].lstrip("-@:+!") if command else ""
    return bool(program) and "hintpolicy" in (host.read_or_none(program) or "")


def policy_of(arguments: str) -> str:
    """The hint policy in the arguments; irqbalance's default if there is none."""
    policies = re.findall(r"(?:--hintpolicy[=\s]|\s-h\s*)(exact|subset|ignore)", arguments)
    return str(policies[-1]) if policies else "ignore"


def banned(host: Host) -> set[int]:
    """The IRQs that its arguments exclude."""
    paths = [*ARGUMENT_FILES, *host.glob(f"{DROP_INS}/*.conf")]
    text = "\n".join(host.read_or_none(path) or "" for path in paths)
    return {int(number) for number in re.findall(r"(?:--banirq[=\s]|\s-i\s*)(\d+)", text)}
