#!/usr/bin/env python3
"""A stand-in for systemctl in host trees: unit states live in run/standin-units.json, unit files are real."""

import json
import os
import sys

Units = dict[str, dict[str, str]]
ROOT = os.environ["GPUCTL_ROOT"]
STATE = ROOT + "/run/standin-units.json"
FOLDERS = ("/etc/systemd/system", "/run/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system")


def load() -> Units:
    with open(STATE) as stream:
        units: Units = json.load(stream)
        return units


def exists(name: str, units: Units) -> bool:
    return name in units or any(os.path.exists(f"{ROOT}{folder}/{name}") for folder in FOLDERS)


def show(names: list[str], properties: list[str], units: Units) -> None:
    blocks = []
    for name in names:
        known = exists(name, units)
        state = units.get(name, {})
        facts = {
            "Id": name,
            "LoadState": "masked" if state.get("boot") == "masked" else "loaded" if known else "not-found",
            "ActiveState": state.get("now", "inactive"),
            "UnitFileState": state.get("boot", "disabled") if known else "",
            "MainPID": state.get("pid", "0"),
        }
        blocks.append("\n".join(f"{p}={facts[p]}" for p in properties if p in facts))
    print("\n\n".join(blocks))


def link(path: str, target: str, on: bool) -> None:
    path = ROOT + path
    if os.path.lexists(path):
        os.unlink(path)
    if on:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        os.symlink(target, path)


def mask(name: str, on: bool) -> str:
    """Return the unit's state after the verb; an unmasked unit gets the state of its file and links."""
    path = f"/etc/systemd/system/{name}"
    if os.path.exists(ROOT + path) and not os.path.islink(ROOT + path):
        sys.exit(f"Failed to mask unit: File '{path}' already exists.")
    link(path, "/dev/null", on)
    if on:
        return "masked"
    if os.path.exists(f"{ROOT}/run/systemd/generator/{name}"):
        return "generated"
    return "enabled" if os.path.lexists(f"{ROOT}/etc/systemd/system/multi-user.target.wants/{name}") else "disabled"


def main() -> None:
    verb, *rest = sys.argv[1:]
    names = [word for word in rest if not word.startswith("-")]
    units = load()
    if verb == "show":
        properties = next(w.split("=")[1] for w in rest if w.startswith("--property=")).split(",")
        show(names, properties, units)
        return
    for name in names:
        if verb not in ("daemon-reload", "unmask") and not exists(name, units):
            sys.exit(f"Unit {name} not found.")
        state = units.setdefault(name, {"boot": "disabled", "now": "inactive"})
        if verb in ("enable", "disable"):
            link(f"/etc/systemd/system/multi-user.target.wants/{name}", f"../{name}", verb == "enable")
        if verb in ("start", "stop"):
            link(f"/run/systemd/units/invocation:{name}", "0123456789abcdef", verb == "start")
        if verb in ("mask", "unmask"):
            state["boot"] = mask(name, verb == "mask")
        side, value = {
            "enable": ("boot", "enabled"), "disable": ("boot", "disabled"),
            "start": ("now", "active"), "stop": ("now", "inactive"),
        }.get(verb, ("", ""))  # fmt: skip
        if side:
            state[side] = value
    with open(STATE, "w") as stream:
        json.dump(units, stream)


main()
