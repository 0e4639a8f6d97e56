"""Entry point of the command: during start-up, Ctrl-C ends it silently, as nothing can be interrupted yet."""

from __future__ import annotations

import signal


def main() -> None:
    """Import the application, then run it."""
    default_handler = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if default_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from gpuctl.cli import app

    if default_handler:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    app.main()
