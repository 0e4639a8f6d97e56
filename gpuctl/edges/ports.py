"""TCP ports: listen at one, test whether a local one is free or a forward reaches a server, and what a server sends."""

from __future__ import annotations

import socket

from gpuctl.core.errors import Unreachable


def free(port: int) -> bool:
    """True if a program of this user can listen on the port."""
    with socket.socket() as probe:
        # Like kubectl: only a listener occupies the port, not a connection that has just ended.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def listen(ip: str, port: int) -> socket.socket:
    """Listen at an address; port 0: one that is free. OSError if it is taken, or not of this machine."""
    return socket.create_server((ip, port), family=socket.AF_INET6 if ":" in ip else socket.AF_INET)


def answers(port: int, patience: float = 1.0) -> bool:
    """True if a connection through a forward stays open or returns data: kubectl closes it if nothing listens.

    The local end always accepts, so an accepted connection proves nothing.
    """
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=patience) as probe:
            return probe.recv(1) != b""
    except TimeoutError:
        return True  # no data and not closed: a server that waits for the client
    except OSError:
        return False


def greeting(host: str, port: int, limit_s: float) -> bytes:
    """First bytes that a server sends by itself; empty if it closes without them. `Unreachable` if it sends none."""
    doing = f"reach {host}:{port}"
    try:
        with socket.create_connection((host, port), timeout=limit_s) as connection:
            return connection.recv(256)
    except socket.gaierror as error:
        raise Unreachable(doing, f"its name is not resolved ({error.strerror})") from error
    except TimeoutError as error:
        raise Unreachable(doing, f"no answer within {limit_s:g} s") from error
    except OSError as error:
        raise Unreachable(doing, error.strerror or str(error)) from error
