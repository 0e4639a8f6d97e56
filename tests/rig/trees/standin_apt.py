#!/usr/bin/python3
"""Stand-in for apt and dpkg: packages are entries of run/standin-packages.json below GPUCTL_ROOT.

That file has `installed` (name -> version, selection, status), `auto` (names), `offered` (name -> versions), `pulls`
(name -> packages that come with it), `fail` (step and message of the next failure), and `stuck`: why dpkg cannot
complete its work.
"""

import json
import os
import sys
from typing import Any

ROOT = os.environ["GPUCTL_ROOT"]
PATH = ROOT + "/run/standin-packages.json"
with open(PATH) as stream:
    DATA: dict[str, Any] = json.load(stream)
INSTALLED: dict[str, dict[str, str]] = DATA["installed"]


def end(code: int, *lines: str) -> None:
    with open(PATH, "w") as stream:
        json.dump(DATA, stream)
    for line in lines:
        print(line, file=sys.stderr if line.startswith(("E: ", "dpkg")) else sys.stdout)
    sys.exit(code)


def after(words: list[str], mark: str) -> list[str]:
    return words[words.index(mark) + 1 :] if mark in words else []


def query(words: list[str]) -> None:
    names = after(words, "--") or sorted(INSTALLED)
    if "${Conffiles}" in words:
        return end(0)
    known = {**INSTALLED, "dpkg": {"version": "1.22.6", "selection": "install", "status": "installed"}}
    rows = [
        "\t".join([name, "amd64", row["version"], row["selection"], "ok", row["status"]])
        for name in names
        for row in [known.get(name)]
        if row
    ]
    missing = [f"dpkg-query: no packages found matching {name}" for name in names if name not in known]
    return end(1 if missing else 0, *rows, *missing)


def fails(step: str) -> str:
    if DATA.get("fail", {}).get("step") == step:
        return str(DATA.pop("fail")["message"])
    return ""


def resolved(specs: list[str]) -> tuple[dict[str, str], list[str]]:
    """(versions to install, packages to remove) of apt's words, with what comes along."""
    versions = {name: version for name, _, version in (spec.partition("=") for spec in specs) if version}
    for name in list(versions):
        for other in DATA.get("pulls", {}).get(name, ()):
            versions.setdefault(other, DATA["offered"][other][0])
    return versions, [spec[:-1] for spec in specs if spec.endswith("-")]


def install(words: list[str]) -> None:
    versions, removes = resolved(after(words, "--"))
    missing = [name for name, version in versions.items() if version not in DATA["offered"].get(name, ())]
    if missing:
        end(100, *(f"E: Version '{versions[name]}' for '{name}' was not found" for name in missing))
    if "--simulate" in words:
        gone = (f"Remv {name} [1]" for name in removes)
        end(0, *(f"Inst {name} ({version} site [all])" for name, version in versions.items()), *gone)
    if "--download-only" in words:
        message = fails("download")
        end(100 if message else 0, *([message] if message else []))
    change(versions, removes, fails("install"))


def change(versions: dict[str, str], removes: list[str], message: str) -> None:
    """Install and remove; with a message, fail at the second package and leave it half configured."""
    for number, (name, version) in enumerate(sorted(versions.items())[: 2 if message else None]):
        status = "half-configured" if message and number == 1 else "installed"
        INSTALLED[name] = {"version": version, "selection": "install", "status": status}
        DATA["auto"] = [other for other in DATA["auto"] if other != name]
    for name in removes:
        INSTALLED.pop(name, None)
    write_marks()
    end(100 if message else 0, *([message] if message else []))


def write_marks() -> None:
    os.makedirs(ROOT + "/var/lib/apt", exist_ok=True)
    with open(ROOT + "/var/lib/apt/extended_states", "w") as stream:
        stream.writelines(f"Package: {name}\nArchitecture: all\nAuto-Installed: 1\n\n" for name in DATA["auto"])


def mark(words: list[str]) -> None:
    verb, names = words[0], after(words, "--")
    if verb in {"hold", "unhold"}:
        for name in names:
            INSTALLED[name]["selection"] = "hold" if verb == "hold" else "install"
    else:
        others = {name for name in DATA["auto"] if name not in names}
        DATA["auto"] = sorted({*others, *(names if verb == "auto" else [])})
    write_marks()
    end(0)


def dpkg(words: list[str]) -> None:
    if DATA.get("stuck"):
        end(1, f"dpkg: error: {DATA['stuck']}")
    for row in INSTALLED.values():
        row["status"] = "installed"
    for name in after(words, "--") if "--purge" in words else ():
        INSTALLED.pop(name, None)
    end(0)


def cache(words: list[str]) -> None:
    names = after(words, "madison")
    end(0, *(f"{name} | {version} | site ./ Packages" for name in names for version in DATA["offered"].get(name, ())))


def get(words: list[str]) -> None:
    if "install" in words:
        install(words)
    end(0)


PROGRAMS = {"dpkg-query": query, "dpkg": dpkg, "apt-cache": cache, "apt-mark": mark, "apt-get": get}
PROGRAMS[os.path.basename(sys.argv[0])](sys.argv[1:])
