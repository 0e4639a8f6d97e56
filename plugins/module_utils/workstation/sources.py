"""Fill a version's folder from a release archive, PyPI or npm, with every file verified."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from typing import Any

from .fetch import fetch, program
from .machine import Machine
from .model import WorkstationError, program_of
from .record import put_file, remove_tree

_SECONDS = 300
_LEFT_OUT = "its program for this system is unavailable or was rejected"


def by_release(machine: Machine, tool: Mapping[str, Any], url: str, pin: str, folder: str) -> None:
    """Download the archive, verify its pin, and extract the program."""
    archive = os.path.join(folder, ".archive")
    fetch(url, pin, archive)
    values = {"version": str(tool["release"]["version"]), "os": machine.os, "arch": machine.arch}
    data = program(archive, str(tool["release"].get("member", "")).format(**values))
    os.unlink(archive)
    put_file(os.path.join(folder, program_of(tool)), data, 0o755)


def by_pip(machine: Machine, tool: Mapping[str, Any], folder: str) -> None:
    """Install into a virtual environment; pip rejects other hashes and anything that needs a build."""
    # The system's Python, which stays: a virtual environment breaks when its base Python is removed.
    python = machine.system("python3") or machine.which("python3") or sys.executable
    created = machine.run(python, "-m", "venv", folder, limit=_SECONDS)
    if not created.ok:
        raise WorkstationError(
            f"cannot create a virtual environment (Debian: the package python3-venv): {created.last_line}"
        )
    requirements_file = os.path.join(folder, "requirements.txt")
    put_file(requirements_file, requirements(tool["pip"]["hashes"]).encode(), 0o644)
    pip = [os.path.join(folder, "bin", "pip"), "install", "-q", "--disable-pip-version-check", "--no-cache-dir"]
    only = [
        "--require-hashes",
        "--only-binary=:all:",
        "--timeout=10",
        "--retries=1",
        f"--requirement={requirements_file}",
    ]
    done = machine.run(*pip, *only, limit=_SECONDS)
    if not done.ok:
        raise WorkstationError(
            f"pip cannot install {tool['pip']['package']} {tool['pip']['version']}: {_error(done.err, done.last_line)}"
        )


def requirements(hashes: Mapping[str, Any]) -> str:
    """Return pip's requirements file: "name==version" with the sha256 of each accepted file."""
    lines = (" ".join([name, *(f"--hash=sha256:{sha256}" for sha256 in files)]) for name, files in hashes.items())
    return "".join(f"{line}\n" for line in lines)


def by_npm(machine: Machine, tool: Mapping[str, Any], folder: str, may_run: bool = True) -> None:
    """Run `npm ci` with our lock file; npm rejects packages with a different integrity hash.

    Without `may_run`, as in a check, no code of the package is executed.
    """
    for name, content in lock(tool).items():
        put_file(os.path.join(folder, name), json.dumps(content, indent=1).encode(), 0o644)
    # npm's cache goes into the tool's folder, not into the user's home.
    quiet = ["--no-fund", "--no-audit", "--no-update-notifier", f"--cache={folder}/.npm"]
    patience = ["--fetch-timeout=10000", "--fetch-retries=1", *([] if may_run else ["--ignore-scripts"])]
    done = machine.run("npm", "ci", f"--prefix={folder}", *quiet, *patience, limit=_SECONDS)
    remove_tree(os.path.join(folder, ".npm"))
    package = f"{tool['npm']['package']} {tool['npm']['version']}"
    if not done.ok:
        raise WorkstationError(f"npm cannot install {package}: {_error(done.err, done.last_line)}")
    # Its program for this system is an optional package: npm silently omits one that it rejects.
    if may_run and not machine.version(tool, os.path.join(folder, npm_program(tool))):
        raise WorkstationError(f"npm installed {package}, but it does not run: {_LEFT_OUT}")
    systems = [os.path.join(folder, "node_modules", name) for name in tool["npm"].get("systems", {})]
    if systems and not any(map(os.path.isdir, systems)):
        raise WorkstationError(f"npm would install {package}, but it would not run: {_LEFT_OUT}")


def npm_program(tool: Mapping[str, Any]) -> str:
    """Return the path of the program below the version's folder."""
    return f"node_modules/.bin/{program_of(tool)}"


def lock(tool: Mapping[str, Any]) -> dict[str, Any]:
    """Return package.json and package-lock.json for a row: the package, and its variant for each system."""
    npm = tool["npm"]
    name, version = npm["package"], npm["version"]
    systems = npm.get("systems", {})
    main = {"version": version, "integrity": npm["integrity"], "hasInstallScript": True}
    main.update(bin={program_of(tool): npm["program"]}, optionalDependencies=dict.fromkeys(systems, version))
    root = {"name": "tool", "version": "1.0.0", "dependencies": {name: version}}
    packages = {"": root, f"node_modules/{name}": main}
    for variant, system in systems.items():
        only = {key: [system[key]] for key in ("os", "cpu", "libc") if key in system}
        packages[f"node_modules/{variant}"] = {
            "version": version,
            "integrity": system["integrity"],
            "optional": True,
            **only,
        }
    return {
        "package.json": root,
        "package-lock.json": {**root, "lockfileVersion": 3, "requires": True, "packages": packages},
    }


def _error(stderr: str, last: str) -> str:
    """Return the first line that mentions an error; the last one often only names a log file."""
    lines = [line.strip() for line in stderr.splitlines() if "error" in line.lower() and "log" not in line]
    return lines[0] if lines else last
