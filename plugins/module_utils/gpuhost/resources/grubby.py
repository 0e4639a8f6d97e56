"""A kernel argument set by grubby (RHEL family, Amazon Linux): "grubby:iommu", text "pt", None if it is absent.

Read from the boot loader entries, as grubby is a shell script that starts a dozen programs per entry.
"""

from __future__ import annotations

from ..host import Host
from ..kernel_line import argument, loader_entries, value


class Grubby:
    """One argument on the lines of all installed kernels."""

    def __init__(self, name: str) -> None:
        self.name = name

    def read(self, host: Host) -> str | None:
        """The value of the kernels that have the argument; values joined by "or" if they differ."""
        return " or ".join(self._values(host)) or None

    def write(self, host: Host, text: str | None) -> None:
        if text is None:
            change = "--remove-args=" + " ".join(argument(self.name, value) for value in self._values(host))
        else:
            change = "--args=" + argument(self.name, text)  # replaces all other values
        done = host.run("grubby", "--update-kernel=ALL", change, changes=True)
        if not done.ok:
            raise RuntimeError(f"grubby: {done.last_line}")

    def _values(self, host: Host) -> list[str]:
        return sorted(
            {current for arguments in loader_entries(host) if (current := value(arguments, self.name)) is not None}
        )
