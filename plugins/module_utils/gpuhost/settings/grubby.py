"""A kernel argument kept by grubby (RHEL family, Amazon Linux): "grubby:iommu=pt", text "on" or None."""

from __future__ import annotations

import re

from ..host import Host
from ..model import Unreadable


def arguments_of_every_kernel(host: Host) -> list[list[str]]:
    """The kernel arguments of each installed boot entry."""
    said = host.run("grubby", "--info=ALL")
    if not said.ok:
        raise Unreadable(f"grubby --info=ALL: {said.said}")
    return [found.split() for found in re.findall(r'^args="(.*)"$', said.out, re.MULTILINE)]


class Grubby:
    """One argument on the line of every installed kernel."""

    def __init__(self, argument: str) -> None:
        self.argument = argument

    def read(self, host: Host) -> str | None:
        entries = arguments_of_every_kernel(host)
        if not entries:
            raise Unreadable("grubby lists no boot entry")
        return "on" if all(self.argument in entry for entry in entries) else None

    def write(self, host: Host, text: str | None) -> None:
        verb = "--args" if text == "on" else "--remove-args"
        done = host.run("grubby", "--update-kernel=ALL", f"{verb}={self.argument}", changes=True)
        if not done.ok:
            raise RuntimeError(f"grubby: {done.said}")
