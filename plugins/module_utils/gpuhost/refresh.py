"""Programs to run after files have changed, so that the system reads them."""

from __future__ import annotations

from collections.abc import Iterable

from .host import Host

GRUB = ("update-grub", "grub2-mkconfig -o /boot/grub2/grub.cfg", "grub-mkconfig -o /boot/grub/grub.cfg")

LOAD = "load:"  # and a module's name

# Containers go on running: containerd's have a shim each, and Docker and CRI-O read the file again.
FIXED = {
    "systemd": "systemctl daemon-reload",
    "modules": "systemctl restart systemd-modules-load.service",
    "containerd": "systemctl try-restart containerd.service",
    "docker": "systemctl try-reload-or-restart docker.service",
    "crio": "systemctl try-reload-or-restart crio.service",
}


def refresh(host: Host, names: Iterable[str]) -> dict[str, str]:
    """Run each refresh once; return the errors by name."""
    failed = {}
    for name in sorted(set(names)):
        for command in _commands(host, name):
            done = host.run(*command.split(), changes=True, limit=900)
            if not done.ok:
                failed[name] = done.last_line
                break
    return failed


def _commands(host: Host, name: str) -> list[str]:
    if name.startswith(LOAD):  # one that another module's load has brought along needs no command
        module = name[len(LOAD) :]
        return [] if host.exists(f"/sys/module/{module}") else [f"modprobe -- {module}"]
    if name in FIXED:
        return [FIXED[name]]
    if name == "irqbalance":  # irqbalance reads its arguments only when it starts
        return ["systemctl daemon-reload", "systemctl try-restart irqbalance.service"]
    if name == "initramfs":
        return _initramfs(host)
    if name == "udev":  # only a running udevd has rules to reload
        return ["udevadm control --reload"] if host.exists("/run/udev/control") else []
    return [next((command for command in GRUB if host.which(command.split()[0])), "update-grub")]


def _initramfs(host: Host) -> list[str]:
    """For every installed kernel; a host that boots without an initramfs needs none."""
    if host.which("update-initramfs"):
        return ["update-initramfs -u -k all"] if host.glob("/boot/initrd.img-*") else []
    return ["dracut --force --regenerate-all"] if host.which("dracut") else []
