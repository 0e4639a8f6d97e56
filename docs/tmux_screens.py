"""Render the screenshots of docs/tmux.md from a real tmux: `python -m docs.tmux_screens`."""

from __future__ import annotations

import tempfile
from html import escape
from itertools import groupby
from pathlib import Path

import pyte
import yaml

from gpuctl.core.settings import Settings
from gpuctl.tmux import render
from tests.rig.tmux.screen import GPUCTL, Terminal, User, user, wait_until

IMAGES = Path(__file__).with_name("images")
WIDE, HIGH = 8.4, 18  # of a character
CLOCK = "09:00"
NO_BREAK = "\N{NO-BREAK SPACE}"  # browsers collapse other spaces, in spite of xml:space
INK, PAPER = "d0d0d0", "101418"
NAMED = {
    "default": "",
    "black": "000000",
    "red": "cd3131",
    "green": "0dbc79",
    "brown": "e5e510",  # what pyte calls yellow
    "blue": "2472c8",
    "magenta": "bc3fbc",
    "cyan": "11a8cd",
    "white": "ffffff",
}


def main() -> None:
    """Render a production context, then the cheatsheet over it."""
    with tempfile.TemporaryDirectory() as folder, user(Path(folder)) as me:
        prepare(me)
        screen = me.terminal(str(GPUCTL), "tmux", "launch", columns=100, rows=28)
        wait_until(lambda: screen.text.count("prod-east team") == 4, "three prompts and the status bar")
        IMAGES.mkdir(exist_ok=True)
        (IMAGES / "tmux-window-0.svg").write_text(picture(screen))
        screen.prefix("?")
        screen.sees("press any key to close")
        (IMAGES / "tmux-cheatsheet.svg").write_text(picture(screen))


def prepare(me: User) -> None:
    """Create the first version, with a stopped clock so that every run draws the same picture, and a kubeconfig."""
    version = me.config / "tmux/versions/v1"
    for name, text in render.files(Settings()).items():
        (version / name).parent.mkdir(parents=True, exist_ok=True)
        (version / name).write_text(text.replace("%H:%M", CLOCK))
    (me.config / "tmux/current").symlink_to("versions/v1")
    inside = {"cluster": "c", "user": "u", "namespace": "team"}
    text = yaml.safe_dump({"contexts": [{"name": "prod-east", "context": inside}], "current-context": "prod-east"})
    (me.home / ".kube").mkdir()
    (me.home / ".kube/config").write_text(text)


def picture(screen: Terminal) -> str:
    """Return the screen as SVG, character by character."""
    wide, high = screen.screen.columns * WIDE, screen.screen.lines * HIGH
    rows = "\n".join(_row(screen.screen, number) for number in range(screen.screen.lines))
    style = f'font-family="monospace" font-size="14" fill="#{INK}" xml:space="preserve"'
    box = f'<rect width="{wide:.0f}" height="{high}" fill="#{PAPER}"/>'
    size = f'width="{wide:.0f}" height="{high}" viewBox="0 0 {wide:.0f} {high}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size} {style}>\n{box}\n{rows}\n</svg>\n'


def _row(screen: pyte.Screen, number: int) -> str:
    cells = [(column, screen.buffer[number][column]) for column in range(screen.columns)]
    drawn = []
    for (ink, paper, bold), run in groupby(cells, key=lambda cell: _style(cell[1])):
        letters = list(run)
        text = "".join(cell.data for _, cell in letters)
        x, width = letters[0][0] * WIDE, len(letters) * WIDE
        if paper:
            drawn.append(f'<rect x="{x:.1f}" y="{number * HIGH}" width="{width:.1f}" height="{HIGH}" fill="#{paper}"/>')
        if text.strip():
            weight = ' font-weight="bold"' if bold else ""
            colour = f' fill="#{ink}"' if ink else ""
            position = f'x="{x:.1f}" y="{number * HIGH + 14}" textLength="{width:.1f}"'
            shown = escape(text.replace(" ", NO_BREAK))
            drawn.append(f"<text {position}{colour}{weight}>{shown}</text>")
    return "".join(drawn)


def _style(cell: pyte.screens.Char) -> tuple[str, str, bool]:
    ink, paper = NAMED.get(cell.fg, cell.fg), NAMED.get(cell.bg, cell.bg)
    if cell.reverse:
        ink, paper = paper or PAPER, ink or INK
    return ink, paper, cell.bold


if __name__ == "__main__":
    main()
