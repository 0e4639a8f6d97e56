"""Where the command begins: Ctrl-C ends it without a word until there is something that could be broken off."""

from __future__ import annotations

import signal


def main() -> None:
    """The entry point of the command."""
    python_s = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if python_s:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from gpuctl.cli import app

    if python_s:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    app.main()
