"""Lines of cron: system tables, all users' tables, and the folders of hourly to monthly scripts."""

from __future__ import annotations

import re

from .lines import ConfigLine, StartupLine
from .search import Search

SYSTEM_TABLES = ("/etc/crontab", "/etc/anacrontab", "/etc/cron.d/*")
# One table per user: cronie, Debian's cron, and that of SUSE.
USER_TABLES = ("/var/spool/cron/*", "/var/spool/cron/crontabs/*", "/var/spool/cron/tabs/*")
PERIODIC = "/etc/cron.{}/*"
PERIODS = ("hourly", "daily", "weekly", "monthly")
SUDO = re.compile(r"\b(?:sudo|doas|pkexec|su)\s")


def cron_lines(search: Search) -> list[StartupLine]:
    """Lines of the tables and scripts, all of them late. Of ordinary users only the lines with sudo."""
    rows: list[StartupLine] = []
    for pattern in SYSTEM_TABLES:
        for path in search.host.glob(pattern):
            rows += _of_table(search, path, _runs(search, path) if "/cron.d/" in path else True)
    for pattern in USER_TABLES:
        for path in search.host.glob(pattern):
            user = path.rpartition("/")[2]
            lines = _of_table(search, path, runs=True)
            rows += lines if user == "root" else [row for row in lines if SUDO.search(row.line.text)]
    for period in PERIODS:
        for path in search.host.glob(PERIODIC.format(period)):
            runs = _runs(search, path) and search.host.is_executable(path)
            rows += search.script_lines("cron", path, runs=runs, late=runs)
    return rows


def _of_table(search: Search, path: str, runs: bool) -> list[StartupLine]:
    lines = [line for line in search.lines("cron", path) if not _is_variable(line)]
    return [row for line in lines for row in search.with_named(StartupLine(line, runs, runs))]


def _is_variable(line: ConfigLine) -> bool:
    return bool(re.match(r"\w+\s*=", line.text))


def _runs(search: Search, path: str) -> bool:
    """False for a file that cron skips for its name: on Debian any with a dot, elsewhere leftovers of editors."""
    name = path.rpartition("/")[2]
    if search.host.exists("/etc/debian_version"):
        return bool(re.fullmatch(r"[\w-]+", name))
    return not re.search(r"^\.|~$|,$|\.(?:rpm(?:save|orig|new)|swp|cfsaved)$", name)
