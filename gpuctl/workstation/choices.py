"""The user's choices for this workstation, remembered between runs of `gpuctl bootstrap laptop`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from gpuctl.core.errors import GpuctlError
from gpuctl.core.paths import private, state_dir, write_atomically

Choice = bool | str
OPTIONS: Mapping[tuple[str, Choice], str] = {
    ("start_tmux", True): "--start-tmux",
    ("start_tmux", False): "--no-start-tmux",
    ("packages", True): "--packages",
    ("packages", False): "--no-packages",
}
VARIABLES: Mapping[str, str] = {"bin": "GPUCTL_TOOLS_BIN", "folder": "GPUCTL_TOOLS_FOLDER"}
TYPES: Mapping[str, type] = {"start_tmux": bool, "packages": bool, "bin": str, "folder": str}


def path() -> Path:
    return state_dir() / "workstation" / "choices.json"


def read() -> dict[str, Choice]:
    """Return the remembered choices; `GpuctlError` if the file is damaged."""
    try:
        choices = json.loads(path().read_text())
        if any(not isinstance(value, TYPES[name]) for name, value in choices.items()):
            raise ValueError("a value has the wrong type")
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, AttributeError, KeyError) as error:
        raise GpuctlError(
            "read the saved options of this workstation",
            f"{path()} cannot be read ({error})",
            "delete the file, and pass your options again, such as --start-tmux",
        ) from error
    return dict(choices)


def remember(choices: Mapping[str, Choice]) -> None:
    """Store the choices; none removes the file."""
    if choices:
        private(path().parent)
        write_atomically(path(), json.dumps(choices, sort_keys=True) + "\n")
    else:
        path().unlink(missing_ok=True)


def described(choices: Mapping[str, Choice]) -> str:
    """Return choices as the options and variables that make them."""
    return ", ".join(
        OPTIONS.get((name, value), f"{VARIABLES.get(name)}={value}")
        for name, value in sorted(choices.items(), key=lambda choice: [*TYPES].index(choice[0]))
    )
