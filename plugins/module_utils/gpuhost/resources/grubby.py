"""A kernel argument kept by grubby (RHEL family, Amazon Linux): "grubby:iommu" holds "pt", or None where it is absent.

It is read from the boot loader's own entries: grubby is a shell script that starts a dozen programs for each of them.
"""

from __future__ import annotations

from ..host import Host
from ..kernel_line import argument, loader_entries, value


class Grubby:
    """One argument on the lines of every installed kernel."""

    def __init__(self, name: str) -> None:
        self.name = name

    def read(self, host: Host) -> str | None:
        """Its value; a kernel that was installed later may lack it. Several, joined by "or", where kernels differ."""
        return " or ".join(self._values(host)) or None

    def write(self, host: Host, text: str | None) -> None:
        if text is None:
            change = "--remove-args=" + " ".join(argument(self.name, held) for held in self._values(host))
        else:
            change = "--args=" + argument(self.name, text)  # in the place of every other value
        done = host.run("grubby", "--update-kernel=ALL", change, changes=True)
        if not done.ok:
            raise RuntimeError(f"grubby: {done.said}")

    def _values(self, host: Host) -> list[str]:
        return sorted({held for words in loader_entries(host) if (held := value(words, self.name)) is not None})
