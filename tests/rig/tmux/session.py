"""What several tests of the shipped tmux session need; its fixtures are in tmux_fixtures.py."""

from __future__ import annotations

from pathlib import Path

import yaml

from tests.rig.tmux.screen import Terminal, User, wait_until

SETTINGS = """\
repositories: {k8s-deploy: ~/code/deploy, k8s: ~/code/gone}
"""
# Stands in for k9s: tmux knows it by its name, and it ends at Enter.
K9S = """\
#!/bin/bash
exec -a k9s bash -c 'echo "standin-k9s $*"; read -r line; exit 3' k9s "$@"
"""


def launched(me: User, columns: int = 120, rows: int = 40, prompt: bool = True) -> Terminal:
    terminal = me.terminal(str(me.program_path), "tmux", "launch", columns=columns, rows=rows)
    terminal.sees("tmux-main", "0 kubernetes", "3 k8s")
    if prompt:
        shell_is_ready(me, "tmux-main:")
    return terminal


def shell_is_ready(me: User, pane: str) -> None:
    """Wait for the prompt: what is told of a pane before that may be told anew by its shell."""

    def ready() -> bool:
        return me.told("pane_current_command", pane) == "bash" and me.tmux(
            "capture-pane", "-p", "-t", pane
        ).rstrip().endswith(("$", "#"))

    wait_until(ready, f"{pane} has a prompt")


def kubeconfig(path: Path, context: str, namespace: str = "team") -> Path:
    inside = {"cluster": "c", "user": "u", "namespace": namespace}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump({"contexts": [{"name": context, "context": inside}], "current-context": context}))
    return path


def saves(me: User) -> list[Path]:
    return sorted((me.home / ".local/state/gpuctl/tmux").glob("*.yml"))
