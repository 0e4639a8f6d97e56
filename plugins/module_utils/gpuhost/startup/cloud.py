"""Lines of cloud-init: commands of every boot, and those of an instance's first boot, which do not run again."""

from __future__ import annotations

import re

from .lines import StartupLine
from .search import Search

DISABLED = "/etc/cloud/cloud-init.disabled"
CONFIGS = ("/etc/cloud/cloud.cfg", "/etc/cloud/cloud.cfg.d/*.cfg")
# User and vendor data as cloud-init merged them for this instance.
MERGED = tuple(f"/var/lib/cloud/instance/{name}cloud-config.txt" for name in ("", "vendor-", "vendor2-"))
EVERY_BOOT = ("/var/lib/cloud/scripts/per-boot/*", "/var/lib/cloud/instance/boothooks/*")
# Modules that run at an instance's first boot, unless the configuration says "always".
ONCE = ("runcmd", "write_files", "write-files", "scripts-user", "scripts_user")
ALWAYS = re.compile(r"\[\s*[\"']?(?:runcmd|write[_-]files|scripts[_-]user)[\"']?\s*,\s*[\"']?always")


def cloud_lines(search: Search) -> list[StartupLine]:
    """Lines of cloud-init's configuration and scripts, those of every boot as late ones."""
    on = not search.host.exists(DISABLED)
    rows: list[StartupLine] = []
    paths = [path for pattern in (*CONFIGS, *MERGED) for path in search.host.glob(pattern)]
    always = any(ALWAYS.search(search.text(path)) for path in paths)
    for path in paths:
        module = ""
        for line in search.lines("cloud-init", path):
            # Joined lines have no indentation any more: a module's name is the only text of its line.
            name = re.fullmatch(r"([a-z][\w-]*):(?:\s.*)?", line.text)
            if name and not _is_indented(search, line.path, line.number):
                module = name[1]
            again = on and (always or module not in ONCE)
            row = StartupLine(line, runs=again, late=again)
            rows += [
                row,
                *(more for more in search.with_named(row) if more != row),
            ]  # words of a command have a line each
    for pattern in EVERY_BOOT:
        for path in search.host.glob(pattern):
            rows += search.script_lines("cloud-init", path, runs=on, late=on)
    return rows


def _is_indented(search: Search, path: str, number: int) -> bool:
    return search.text(path).splitlines()[number - 1][:1].isspace()
