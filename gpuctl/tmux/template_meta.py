"""What a session of a template has besides its windows; it is kept with the session, for the saves."""

from __future__ import annotations

import json

from gpuctl.core.errors import GpuctlError
from gpuctl.edges.tmux import Server
from gpuctl.tmux import session_file
from gpuctl.tmux.paths import current
from gpuctl.tmux.session import Session

OPTION = "@gpuctl_frame"


def keep(server: Server, target: str, session: Session) -> None:
    """Note it on the session; one of no template has that of the current version, also when that is another one."""
    if session.template:
        meta = {
            "template": session.template,
            "directory": session.directory,
            "git": dict(session.git),
            "restore": session.restore,
        }
        server.do("set-option", "-t", target, OPTION, json.dumps(meta))


def kept(server: Server, target: str) -> Session:
    """The session without its windows, or as the current version has it; `GpuctlError` where the note is no such."""
    text = server.do("show-options", "-qv", "-t", target, OPTION).strip()
    if not text:
        return session_file.read(current() / "session.yml")
    try:
        meta = json.loads(text)
        return Session(meta["directory"], (), meta["git"], tuple(meta["restore"]), meta["template"])
    except (ValueError, KeyError, TypeError) as error:
        wrong = f"its option {OPTION} cannot be read ({error})"
        raise GpuctlError("save the session", wrong, f"`tmux set-option -u {OPTION}` in it forgets it") from None
