"""Hooks that run when a network interface changes its state, which it may do at any time."""

from __future__ import annotations

import re
from collections.abc import Iterator

from .lines import StartupLine, in_order
from .search import Search

STATES = ("routable", "configured", "carrier", "degraded", "configuring", "no-carrier")
# Owner, folders in order of precedence, their folders of hooks, and the unit that runs these.
HOOKS = (
    (
        "NetworkManager",
        ("/etc/NetworkManager/dispatcher.d", "/usr/lib/NetworkManager/dispatcher.d"),
        ("", "/pre-up.d", "/pre-down.d", "/no-wait.d"),
        "NetworkManager.service",
    ),
    (
        "networkd-dispatcher",
        ("/etc/networkd-dispatcher", "/usr/lib/networkd-dispatcher"),
        tuple(f"/{state}.d" for state in STATES),
        "networkd-dispatcher.service",
    ),
)
IFUPDOWN = ("/etc/network/if-pre-up.d", "/etc/network/if-up.d", "/etc/network/if-down.d", "/etc/network/if-post-down.d")
DHCP = ("/etc/dhcp/dhclient-enter-hooks.d", "/etc/dhcp/dhclient-exit-hooks.d")
SINGLE = ("/etc/dhcp/dhclient-enter-hooks", "/etc/dhcp/dhclient-exit-hooks", "/sbin/ifup-local")
INTERFACES = "/etc/network/interfaces"
COMMAND = re.compile(r"(?:pre-up|up|post-up|pre-down|down|post-down)\s+(.+)")
SOURCE = re.compile(r"(source|source-directory)\s+(\S+)")


def network_lines(search: Search) -> list[StartupLine]:
    """Lines of the hooks and of the scripts that they name, all of them late."""
    rows = list(_of_dispatchers(search))
    if search.host.which("ifup"):
        rows += [*_of_ifupdown(search), *_interfaces(search)]
    dhcp = [f"{folder}/{name}" for folder in DHCP for name in search.host.listdir(folder)]
    for path in (*dhcp, *SINGLE):  # sourced by other scripts, so without an executable bit
        rows += search.script_lines("network hook", path, runs=True, late=True)
    return rows


def _of_dispatchers(search: Search) -> Iterator[StartupLine]:
    for owner, folders, states, unit in HOOKS:
        for state in states:
            for path in in_order(search.host, tuple(folder + state for folder in folders), ""):
                runs = unit in search.linked and search.host.is_executable(path)
                yield from search.script_lines(owner, path, runs=runs, late=runs)


def _of_ifupdown(search: Search) -> Iterator[StartupLine]:
    for folder in IFUPDOWN:
        for name in search.host.listdir(folder):
            if re.fullmatch(r"[\w-]+", name) and search.host.is_executable(f"{folder}/{name}"):  # as run-parts does
                yield from search.script_lines("ifupdown", f"{folder}/{name}", runs=True, late=True)


def _interfaces(search: Search) -> Iterator[StartupLine]:
    """Commands in /etc/network/interfaces and in the files that it includes."""
    due, known = [INTERFACES], set()
    while due:
        path = due.pop()
        if path in known:
            continue
        known.add(path)
        for line in search.lines("ifupdown", path):
            source, command = SOURCE.match(line.text), COMMAND.match(line.text)
            if source:
                place = source[2] if source[2].startswith("/") else f"/etc/network/{source[2]}"
                due += search.host.glob(f"{place}/*" if source[1] == "source-directory" else place)
            elif command:
                yield from search.with_named(StartupLine(line._replace(text=command[1]), runs=True, late=True))
