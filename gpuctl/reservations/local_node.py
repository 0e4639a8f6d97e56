"""This host as a node: the engine runs in this process."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gpuctl.core.errors import InvalidInput
from gpuctl.engine import gpu_sessions, gpuhost_host
from gpuctl.reservations.agent import Unable, VisitedNode

STATE = gpu_sessions.STATE


def adopt_sessions(root: Path, state: Path) -> None:
    """Move the file of sessions that older versions have in the folder of the database to its place on the host.

    `InvalidInput` if there are two different ones: which sessions run is unknown.
    """
    host, old, new = gpuhost_host.Host(root), state / "sessions.json", Path(gpuhost_host.Host(root).real(STATE))
    if not old.exists() or old.absolute() == new.absolute():
        return
    with gpu_sessions.alone(host):
        text = old.read_text()
        present = host.read_or_none(STATE)
        if present not in (None, text):
            hint = "delete the one that does not have the sessions of now"
            raise InvalidInput("serve reservations", f"{old} and {new} are different files of sessions", hint)
        if present is None:
            host.make_private_folder(str(Path(STATE).parent))
            host.replace(STATE, text, 0o600)
        old.unlink()


def local_node(  # noqa: PLR0913 - a node, and the folder of a test
    name: str,
    gpus: int,
    service: str,
    root: Path = Path("/"),
    end_s: float = gpu_sessions.END_S,
    *,
    label: str = "",
) -> VisitedNode:
    """Devices below `root`. Its sessions have one place on a host, wherever a service has its database."""
    host = gpuhost_host.Host(root)

    def visit(request: Mapping[str, Any]) -> Mapping[str, Any]:
        try:
            return gpu_sessions.run(host, request)
        except OSError as error:  # this host is never out of contact
            raise Unable(str(error)) from error

    return VisitedNode(name, gpus, service, visit, {"end_s": end_s, "label": label})
