"""Resolve a transaction of packages on the host, as its package manager would, and change nothing."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from ..host import Host, Result
from .additions import apt_with
from .package_lists import APT_READ_ONLY, LIMIT_S, WITHOUT_LOCKS, dnf_read_only, manager

PREFERENCES = "/etc/apt/preferences.d"
APT = ("--simulate", "--no-install-recommends", "--allow-downgrades", "--allow-change-held-packages", "install")


def read(host: Host, request: Mapping[str, Any]) -> dict[str, Any]:
    """`manager` (apt or dnf) and `output` of the resolution; None with a reason in `unread` if it could not be run.

    Request: `packages` with versions, as the package manager takes them; `pins`: text of apt preferences that apply
    besides the host's; `additions`: repositories to know as well, see `additions.apt_with`; `hotfixes`: True to see
    packages that dnf's module streams hide. A resolution that fails is an output, too: its error is for the controller
    to judge.
    """
    packages, name = [str(package) for package in request.get("packages", ())], manager(host)
    if not name or not packages:
        reason = "no packages are to be resolved" if name else "neither apt-get nor dnf is on this host"
        return {"manager": name or None, "output": None, "unread": {"output": reason}}
    try:
        result = RESOLVERS[name](host, packages, request).without_secrets
    except OSError as error:
        reason = f"{error.filename}: {error.strerror}" if error.filename else str(error)
        return {"manager": name, "output": None, "unread": {"output": reason}}
    output = f"{result.out}{result.err}"
    if result.code in (124, 126, 127) or not output.strip():  # not started, not ended, or silent
        return {"manager": name, "output": None, "unread": {"output": result.last_line}}
    return {"manager": name, "output": output, "unread": {}}


def _apt(host: Host, packages: Sequence[str], request: Mapping[str, Any]) -> Result:
    with host.scratch_folder() as scratch, apt_with(host, request.get("additions") or ()) as known:
        # apt reads one file of preferences and a folder: the file is joined with ours.
        pins = os.path.join(scratch, "preferences")
        own = host.read_or_none("/etc/apt/preferences") or ""
        with open(pins, "w", encoding="utf-8", errors="surrogateescape") as stream:
            stream.write(f"{request.get('pins') or ''}\n{own}")
        # gpuctl's own pin is of the version before.
        parts = os.path.join(scratch, "preferences.d")
        os.mkdir(parts)
        for name in host.listdir(PREFERENCES):
            if not name.startswith("gpuctl-"):
                os.symlink(host.real(f"{PREFERENCES}/{name}"), os.path.join(parts, name))
        options = ("-o", f"Dir::Etc::Preferences={pins}", "-o", f"Dir::Etc::PreferencesParts={parts}")
        return host.run("apt-get", *APT_READ_ONLY, *known, *options, *APT, "--", *packages, limit=LIMIT_S)


def _dnf(host: Host, packages: Sequence[str], request: Mapping[str, Any]) -> Result:
    hotfixes = ["--setopt=*.module_hotfixes=1"] if request.get("hotfixes") else []
    with dnf_read_only(host) as options:
        return host.run(
            *("dnf", *options, *hotfixes, "--assumeno", "--setopt=install_weak_deps=0", "--setopt=installonly_limit=0"),
            *WITHOUT_LOCKS,  # the versions are exact, and gpuctl's own locks are of those before
            # Modules of the two flavours exclude each other: what would go is for the controller to judge.
            *("--allowerasing", "install", "--", *packages),
            limit=LIMIT_S,
        )


RESOLVERS = {"apt": _apt, "dnf": _dnf}
