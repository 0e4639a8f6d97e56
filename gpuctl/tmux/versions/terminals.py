"""Choose the terminal for a preview, from the environment alone."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

Mode = Literal["window", "this terminal", "detached"]

# Program -> the arguments before the command to run.
LINUX: Mapping[str, Sequence[str]] = {
    "gnome-terminal": ("--wait", "--"),
    "konsole": ("-e",),
    "kitty": (),
    "alacritty": ("-e",),
    "wezterm": ("start", "--always-new-process", "--"),
    "foot": (),
    "xfce4-terminal": ("--disable-server", "-x"),
    "xterm": ("-e",),
    "x-terminal-emulator": ("-e",),
}
ITERM = (
    'tell application "iTerm2"',
    "activate",
    "set made to (create window with default profile)",
    "tell current session of made to write text {command}",
    "end tell",
)
TERMINAL = ('tell application "Terminal"', "activate", "do script {command}", "end tell")


@dataclass(frozen=True)
class Target:
    """Terminal for the preview: a window opened by `argv`, this one, or none (`why`)."""

    mode: Mode
    argv: tuple[str, ...] = ()
    why: str = ""


def choose(
    command: Sequence[str],
    environment: Mapping[str, str],
    system: str,
    has: Callable[[str], bool],
    on_terminal: bool,
) -> Target:
    """Choose where to show `command`; `system` is platform.system(), `has` is true for an installed program."""
    # In an editor's terminal or over ssh a new window would open elsewhere, or not at all.
    editor = environment.get("TERM_PROGRAM") == "vscode" or "CURSOR_TRACE_ID" in environment
    remote = "SSH_CONNECTION" in environment or "SSH_TTY" in environment
    window = None if editor or remote else _window(command, environment, system, has)
    if window:
        return Target("window", window)
    if not on_terminal:
        return Target("detached", why="there is no terminal")
    if environment.get("TMUX"):
        return Target("detached", why="this runs inside tmux, and a nested tmux does not get its keys")
    return Target("this terminal")


def _window(
    command: Sequence[str], environment: Mapping[str, str], system: str, has: Callable[[str], bool]
) -> tuple[str, ...] | None:
    if system == "Darwin":
        iterm = environment.get("TERM_PROGRAM") == "iTerm.app"
        return _script(ITERM if iterm else TERMINAL, command) if has("osascript") else None
    if not (environment.get("DISPLAY") or environment.get("WAYLAND_DISPLAY")):
        return None
    terminal = next((name for name in LINUX if has(name)), None)
    return (terminal, *LINUX[terminal], *command) if terminal else None


def _script(lines: Sequence[str], command: Sequence[str]) -> tuple[str, ...]:
    typed = shlex.join(command).replace("\\", "\\\\").replace('"', '\\"')
    script = [line.replace("{command}", f'"{typed}"') for line in lines]
    return ("osascript", *(word for line in script for word in ("-e", line)))
