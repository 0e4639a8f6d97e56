"""A stand-in for kubectl that answers from files: objects, events, logs and Secrets of one pod and its node."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

STANDIN_KUBECTL = """#!/bin/sh
case "$*" in
*" logs "*--previous*) file=previous ;;
*" logs "*) file=log ;;
*" get events "*kind=Node*) file=node-events ;;
*" get events "*) file=events ;;
*" get secret "*) file=secret ;;
*" get node "*) file=node ;;
*" get pods "*) file=pods ;;
*) file=pod ;;
esac
[ -e "@/$file" ] || { echo "Error from server (Forbidden): $file is forbidden" >&2; exit 1; }
cat "@/$file"
"""


def standin_kubectl(folder: Path, **answers: str | dict[str, Any] | list[dict[str, Any]]) -> None:
    """Put it into a folder with its answers by the names above; a list becomes one of Kubernetes. Others: forbidden."""
    (folder / "kubectl").write_text(STANDIN_KUBECTL.replace("@", str(folder)))
    (folder / "kubectl").chmod(0o755)
    for name, answer in answers.items():
        listed = {"items": answer} if isinstance(answer, list) else answer
        (folder / name.replace("_", "-")).write_text(listed if isinstance(listed, str) else json.dumps(listed))
