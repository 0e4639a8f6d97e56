"""Files with the facts of a fleet: written by `gpuctl nodes --save`, or nvidia-smi's XML of one node."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from gpuctl.core.errors import GpuctlError, InvalidInput
from gpuctl.core.paths import write_atomically
from gpuctl.engine import fact_types, gpu_xml, typed_json
from gpuctl.nodes import facts_shape
from gpuctl.nodes.model import Facts, Fleet

SCHEMA = "gpuctl.nodes.facts/1"
HINT = "give a file of `gpuctl nodes --save FILE`, or the output of `nvidia-smi -q -x`"
LARGEST = 2**29


def save(path: Path, fleet: Fleet) -> None:
    """Write the facts atomically."""
    taken = datetime.fromtimestamp(fleet.taken, UTC).isoformat(timespec="seconds")
    document = {"schema": SCHEMA, "taken": taken, "nodes": fleet.nodes, "unasked": fleet.unasked}
    try:
        write_atomically(path, json.dumps(document, indent=1) + "\n")
    except OSError as error:
        raise GpuctlError(f"save the facts in {path}", error.strerror or str(error), "name another file") from error


def read(path: Path, name: str = "") -> Fleet:
    """Read facts; `InvalidInput` for any other file. `name`: of the node of a file in XML; "" for the file's own."""
    doing = f"read the facts in {path}"
    try:
        if path.stat().st_size > LARGEST:
            raise InvalidInput(doing, f"it is larger than {LARGEST >> 20} MiB", HINT)
        text = path.read_text(errors="replace")
    except OSError as error:
        raise InvalidInput(doing, error.strerror or str(error), HINT) from error
    if text.lstrip().startswith("<"):
        return _xml(path, text, doing, name or path.stem)
    try:
        document: Any = json.loads(text)
        wrong = _wrong(document)
        taken = 0 if wrong else round(datetime.fromisoformat(document["taken"]).timestamp())
    except (ValueError, RecursionError) as error:
        raise InvalidInput(doing, f"it is neither JSON nor XML: {error}", HINT) from error
    if wrong:
        raise InvalidInput(doing, wrong, HINT)
    return Fleet(document["nodes"], document["unasked"], taken)


def _xml(path: Path, text: str, doing: str, name: str) -> Fleet:
    """GPUs of one node; what nvidia-smi alone cannot tell is unread."""
    try:
        parsed = gpu_xml.parse(text)
    except ValueError as error:
        raise InvalidInput(doing, str(error), HINT) from error
    reason = "an output of nvidia-smi alone does not tell it"
    facts: Facts = {
        **dict.fromkeys(typed_json.fields_of(fact_types.GpuUse)),
        **{name: {} for name in ("pods", "containers", "sessions", "users", "slurm_pids")},
        **parsed,
        "unread": dict.fromkeys(("pod_devices", "slurm_jobs", "processes", "pid_namespace"), reason),
    }
    return Fleet({name: facts}, taken=round(path.stat().st_mtime))


def _wrong(document: Any) -> str:
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        return f"it has no facts of GPUs (its schema is not {SCHEMA})"
    if not all(isinstance(document.get(name), dict) for name in ("nodes", "unasked")):
        return "its nodes are missing"
    if not isinstance(document.get("taken"), str):
        return "its time is missing"
    shapes = ((node, facts_shape.misfit(facts)) for node, facts in document["nodes"].items())
    return next((f"facts of {node}: {wrong}" for node, wrong in shapes if wrong), "")
