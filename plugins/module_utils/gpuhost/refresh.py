"""What must run after files have changed so that the system takes note of them."""

from __future__ import annotations

from collections.abc import Iterable

from .host import Host

GRUB = ("update-grub", "grub2-mkconfig -o /boot/grub2/grub.cfg", "grub-mkconfig -o /boot/grub/grub.cfg")


def refresh(host: Host, names: Iterable[str]) -> dict[str, str]:
    """Run each of them once; returns what went wrong, by name."""
    failed = {}
    for name in sorted(set(names)):
        for command in _commands(host, name):
            done = host.run(*command.split(), changes=True, limit=300)
            if not done.ok:
                failed[name] = done.said
                break
    return failed


def _commands(host: Host, name: str) -> list[str]:
    if name == "systemd":
        return ["systemctl daemon-reload"]
    if name == "irqbalance":  # it reads its arguments when it starts
        return ["systemctl daemon-reload", "systemctl try-restart irqbalance.service"]
    if name == "udev":  # where no udevd runs, nobody needs to take note
        return ["udevadm control --reload"] if host.exists("/run/udev/control") else []
    return [next((command for command in GRUB if host.which(command.split()[0])), "update-grub")]
