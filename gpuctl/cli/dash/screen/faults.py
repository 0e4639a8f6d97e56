"""Texts of errors on the screen; a fault that is repeated is logged once."""

from __future__ import annotations

from gpuctl.cli.errors import fault_text, known_text


class Faults:
    """Texts of the errors of one panel, which is read and drawn again and again."""

    def __init__(self) -> None:
        self._last: tuple[type[Exception], str] | None = None
        self._text = ""

    def text(self, error: Exception) -> str:
        """An error as the command prints it; a fault of gpuctl with its log. Call it while the error is handled."""
        known = known_text(error)
        if known is not None:
            return known
        fault = (type(error), str(error))
        if fault != self._last:
            self._last, self._text = fault, fault_text(error)
        return self._text
