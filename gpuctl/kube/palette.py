"""The menu of common commands, from palette.yml."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

import gpuctl
from gpuctl.core.errors import GpuctlError
from gpuctl.edges import programs
from gpuctl.edges.kube import kubectl
from gpuctl.kube import choose, popup
from gpuctl.kube.pod import Scope, kubectl_for


@dataclass(frozen=True)
class Entry:
    """A menu entry; palette.yml explains the fields."""

    does: str
    run: Sequence[str]
    needs: str = ""
    choices: Sequence[str] = ()
    stay: bool = True
    window: str = ""


def entries(installed: Callable[[str], bool]) -> list[Entry]:
    """Return the entries whose programs are installed."""
    rows: list[dict[str, Any]] = yaml.safe_load((Path(gpuctl.__file__).parent / "data/palette.yml").read_text())
    return [entry for entry in (Entry(**row) for row in rows) if not entry.needs or installed(entry.needs)]


def filled(template: Sequence[str], names: Mapping[str, str]) -> list[str]:
    """Substitute names in a command template; an option with an empty value is dropped."""
    argv: list[str] = []
    for word in template:
        if word.startswith("$") and not names[word[1:]]:
            argv.pop()
        else:
            argv.append(names[word[1:]] if word.startswith("$") else word)
    return argv


def run() -> int:
    """Let the user choose an entry and run it; returns 0 if they cancel."""
    by_name = {entry.does: entry for entry in entries(programs.installed)}
    does = choose.pick(list(by_name), "command")
    if does is None:
        return 0
    entry, folder = by_name[does], choose.folder_of_pane()
    kube = kubectl_for(Scope())
    names = {"CONTEXT": kube.context, "NAMESPACE": kube.namespace, "ITEM": ""}
    if entry.choices:
        item = _item(filled(entry.choices, names), folder)
        if item is None:
            return 0
        names["ITEM"] = item
    argv = filled(entry.run, names)
    if entry.window and popup.open_window(entry.window, argv[2:]):
        return 0
    argv[0] = os.environ.get("GPUCTL_PROGRAM") or sys.argv[0] if argv[0] == "gpuctl" else argv[0]
    return popup.show(argv, folder) if entry.stay else kubectl.show(argv, folder)


def _item(argv: Sequence[str], folder: str | None) -> str | None:
    output = kubectl.output_of(argv, folder)
    if output is None:
        raise GpuctlError("offer a choice", f"`{' '.join(argv)}` failed", "run it yourself to see why")
    # Terraform marks the current workspace with a star.
    lines = [line.lstrip("* ").rstrip() for line in output.splitlines() if line.strip()]
    if not lines:
        raise GpuctlError("offer a choice", f"`{' '.join(argv)}` lists nothing")
    line = choose.pick(lines, "which")
    return line.split()[0] if line else None
