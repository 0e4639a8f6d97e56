"""A panel that cannot be made: the others are shown, and it shows the error."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from gpuctl.cli.dash.model import PanelKey, View
from gpuctl.core.errors import GpuctlError


class RefusedPanel:
    """Place of a panel, with the error of its command."""

    def __init__(self, name: str, title: str, command: str, error: GpuctlError) -> None:
        self.name, self.title, self.command = name, title, command
        self.keys: Sequence[PanelKey] = ()
        self._error = error

    def read(self) -> NoReturn:
        """Raise the error."""
        raise self._error

    def view(self) -> View:
        return View()

    def detail(self, _: str, /) -> None:
        """No subject is known."""
