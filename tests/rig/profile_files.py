"""Profile files and hosts for tests."""

from __future__ import annotations

import re
from pathlib import Path

from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.facts.machine import Machine
from ansible_collections.gpuctl.fleet.plugins.plugin_utils import profiles

ROW = "{value: %s, why: a reason, source: a test}"


def write(folder: Path, name: str, text: str) -> Path:
    """Write a profile file."""
    path = folder / f"{name}.yml"
    path.write_text(text)
    return path


def row(value: object) -> str:
    """A complete row as YAML."""
    return ROW % value


def mistakes(profile: str | Path, search: list[Path] | None = None) -> list[str]:
    """Every mistake of a profile, without the path of the file itself."""
    try:
        profiles.load(profile, search or [])
    except profiles.ProfileError as error:
        return [re.sub(rf"^{re.escape(str(profile))}:(?=\d)", "", str(mistake)) for mistake in error.mistakes]
    return []


def machine(**facts: object) -> Machine:
    """A bare-metal machine with eight H100, changed by these facts."""
    known = {
        "machine": "metal",
        "distribution": "ubuntu",
        "family": "debian",
        "version": "24.04",
        "arch": "x86_64",
        "vendor": "Supermicro",
        "gpus": ("NVIDIA H100 80GB HBM3",) * 8,
        "nics": ("ethernet", "infiniband"),
        "memory": "2015GiB",
    }
    return Machine(**{**known, **facts})  # type: ignore[arg-type]
