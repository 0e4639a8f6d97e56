"""Thread that reads one panel again and again while it is on the screen."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from gpuctl.cli.dash.model import NEVER, Panel
from gpuctl.cli.dash.screen.faults import Faults
from gpuctl.cli.errors import known_text

AFTER_ERROR_S = 10.0
AFTER_FAULT_S = 60.0  # of gpuctl itself


class Reader(threading.Thread):
    """Reads a panel; `on_change` is called in this thread after each reading and each error.

    `error`: text of the last reading's error, as the command prints it. `since`: local time at which a reading that
    goes on was started, "" if none does.
    """

    def __init__(self, panel: Panel, on_change: Callable[[Panel], None]) -> None:
        super().__init__(daemon=True, name=f"panel {panel.name}")
        self.error, self.since = "", ""
        self._panel, self._on_change = panel, on_change
        self._wake = threading.Event()
        self._shown = self._ended = False
        self._due = 0.0
        self._faults = Faults()

    def set_shown(self, shown: bool, /) -> None:
        """Read only while the panel is shown."""
        self._shown = shown
        self._wake.set()

    def read_now(self) -> None:
        """Read without waiting for the next turn."""
        self._due = 0.0
        self._wake.set()

    def end(self) -> None:
        """Read no more; a reading that goes on is not waited for."""
        self._ended = True
        self._wake.set()

    def run(self) -> None:
        while not self._ended:
            left = self._due - time.monotonic()
            if self._shown and left <= 0:
                self._read()
                continue
            self._wake.wait(left if self._shown and left != NEVER else None)
            self._wake.clear()

    def _read(self) -> None:
        self.since, self._due = time.strftime("%H:%M:%S"), NEVER
        try:
            pause_s = self._panel.read()
            self.error = ""
        except Exception as error:  # noqa: BLE001 - shown in the panel, and logged
            pause_s = AFTER_FAULT_S if known_text(error) is None else AFTER_ERROR_S
            self.error = self._faults.text(error)
        self.since = ""
        if self._due == NEVER:  # nobody has asked for another reading meanwhile
            self._due = time.monotonic() + pause_s
        if not self._ended:
            self._on_change(self._panel)
