"""Check that logins and sudo still work, with all of PAM."""

from __future__ import annotations

from ..host import Host

FIRST, LAST = 1000, 59999  # user ids of ordinary accounts
CLOSED = ("/run/nologin", "/etc/nologin")  # while one of these exists, only root can log in


def why_broken(host: Host) -> str:
    """Why root or all ordinary users cannot log in, or sudo does not work; empty if all work."""
    return _login(host, "root") or _some_login(host, people(host)) or _sudo(host)


def people(host: Host) -> list[str]:
    """Ordinary users with a login shell."""
    rows = (row.split(":") for row in (host.read_or_none("/etc/passwd") or "").splitlines())
    known = [row for row in rows if len(row) == 7 and row[2].isdigit()]
    return [row[0] for row in known if FIRST <= int(row[2]) <= LAST and row[6].endswith("sh")]


def _some_login(host: Host, names: list[str]) -> str:
    """Empty if one of three users can log in, as single accounts may be locked."""
    wrong = ""
    if not any(host.exists(path) for path in CLOSED):
        for name in names[:3]:
            failed = _login(host, name)
            if not failed:
                return ""
            wrong = wrong or failed
    return wrong


def _login(host: Host, name: str) -> str:
    return _try(host, "su", "-l", name, "-s", "/bin/sh", "-c", "true")


def _sudo(host: Host) -> str:
    """Tried only if sudo's rules allow it to root; listing them opens no session."""
    allowed = host.which("sudo") and host.run("sudo", "-n", "-l", "true", limit=30).ok
    return _try(host, "sudo", "-n", "true") if allowed else ""


def _try(host: Host, *argv: str) -> str:
    done = host.run(*argv, limit=30)
    return "" if done.ok else f"`{' '.join(argv)}` fails with it: {done.last_line}"
