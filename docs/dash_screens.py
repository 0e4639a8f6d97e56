"""Render the screenshots of docs/dash.md from a real terminal: `python -m docs.dash_screens`."""

from __future__ import annotations

import re
import tempfile
import time
from pathlib import Path

from docs.tmux_screens import IMAGES, picture
from gpuctl.nodes import facts_file
from gpuctl.nodes.model import Fleet
from tests.rig.gpu_user_facts import NOW, POD, STEPS, facts, job, process
from tests.rig.tmux.screen import GPUCTL, Terminal, user

CLOCK = "09:00:00"
NODES = 12


def main() -> None:
    """Render a made-up fleet, then one of its nodes."""
    with tempfile.TemporaryDirectory() as folder, user(Path(folder), TZ="UTC") as me:
        prepare(me.home / "prod.json")
        screen = me.terminal(str(GPUCTL), "dash", "--from", "prod.json", columns=100, rows=28)
        screen.sees(f"{NODES} \N{MULTIPLICATION SIGN} p5", "read at")
        write("dash-nodes.svg", screen)
        screen.press("Enter")
        screen.sees("4 processes")
        write("dash-node.svg", screen)


def prepare(path: Path) -> None:
    """Write facts of a fleet: jobs, pods and a session on some nodes, others idle, one that does not answer."""
    ranks = [process(70 + n, f"{STEPS}/job_9/step_0/user/task_{n}", since=NOW - 11_520) for n in range(4)]
    used = facts(
        *ranks,
        process(7, POD, command="python serve.py"),
        process(8, login_uid=1001, command="python -m notebook"),
        on={**{n: [70 + n] for n in range(4)}, 4: [7], 6: [8]},
        slurm_jobs=[job("9", 0, 1, 2, 3, 5)],
        slurmd=True,
    )
    fleet = {f"gpu-{n}": used if n % 3 == 1 else facts() for n in range(1, NODES + 1)}
    facts_file.save(path, Fleet(fleet, {"gpu-13": "no route to host"}, NOW))


def write(name: str, screen: Terminal) -> None:
    """Write the screen as SVG once it is drawn to its end, with a stopped clock."""
    before = ""
    while before != (before := screen.text):
        time.sleep(0.5)
    (IMAGES / name).write_text(re.sub(r"\d\d:\d\d:\d\d", CLOCK, picture(screen)))


if __name__ == "__main__":
    main()
