"""A template session's settings besides its windows, stored on the session for its saves."""

from __future__ import annotations

import json

from gpuctl.core.errors import GpuctlError
from gpuctl.edges.tmux import Server
from gpuctl.tmux import session_file
from gpuctl.tmux.paths import current
from gpuctl.tmux.session import Session

OPTION = "@gpuctl_frame"


def store(server: Server, target: str, session: Session) -> None:
    """Store a template session's settings; a session without a template uses those of the current version."""
    if session.template:
        meta = {
            "template": session.template,
            "directory": session.directory,
            "git": dict(session.git),
            "restore": session.restore,
        }
        server.do("set-option", "-t", target, OPTION, json.dumps(meta))


def load(server: Server, target: str) -> Session:
    """Return the session without its windows; `GpuctlError` if the stored text is invalid."""
    text = server.do("show-options", "-qv", "-t", target, OPTION).strip()
    if not text:
        return session_file.read(current() / "session.yml")
    try:
        meta = json.loads(text)
        return Session(meta["directory"], (), meta["git"], tuple(meta["restore"]), meta["template"])
    except (ValueError, KeyError, TypeError) as error:
        wrong = f"its option {OPTION} cannot be read ({error})"
        raise GpuctlError("save the session", wrong, f"`tmux set-option -u {OPTION}` inside it removes it") from None
