"""Local TCP ports: find free ones, and test the far end of a forward."""

from __future__ import annotations

import socket


def free(port: int) -> bool:
    """True if a program of this user can listen on the port."""
    with socket.socket() as probe:
        # As kubectl does it: a connection that has just ended is no hindrance, a listener is.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def answers(port: int, patience: float = 1.0) -> bool:
    """True if a connection through a forward stays open or brings data: kubectl closes it if nothing listens.

    The local end always accepts, so that alone would prove nothing.
    """
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=patience) as probe:
            return probe.recv(1) != b""
    except TimeoutError:
        return True  # nothing came, and nobody hung up: a server that waits to be spoken to
    except OSError:
        return False
