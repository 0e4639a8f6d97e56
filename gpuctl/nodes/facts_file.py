"""Files with the facts of a fleet: written by `gpuctl nodes --save`, or nvidia-smi's XML of one node."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, TypedDict

from gpuctl.core import json_file
from gpuctl.core.errors import GpuctlError, InvalidInput
from gpuctl.core.paths import write_atomically
from gpuctl.engine import answers, bounds, fact_types, gpu_xml, printable, typed_json
from gpuctl.nodes.model import Facts, Fleet

SCHEMA = "gpuctl.nodes.facts/1"
HINT = "pass a file of `gpuctl nodes --save FILE`, or the output of `nvidia-smi -q -x`"


def _seconds(text: str) -> int:
    """Seconds since 1970; ValueError for a text that is no time, or one that no clock shows."""
    try:
        return round(datetime.fromisoformat(text).timestamp())
    except OverflowError as error:
        raise ValueError(text) from error


class _Document(TypedDict):
    nodes: dict[str, object]
    unasked: dict[str, str]
    taken: Annotated[str, bounds.Parsed(_seconds, "a time")]


def save(path: Path, fleet: Fleet) -> None:
    """Write the facts atomically."""
    taken = datetime.fromtimestamp(fleet.taken, UTC).isoformat(timespec="seconds")
    document = {"schema": SCHEMA, "taken": taken, "nodes": fleet.nodes, "unasked": fleet.unasked}
    try:
        write_atomically(path, json.dumps(document, indent=1) + "\n")
    except OSError as error:
        raise GpuctlError(f"save the facts in {path}", error.strerror or str(error), "choose another file") from error


def read(path: Path, name: str = "") -> Fleet:
    """Read facts; `InvalidInput` for any other file. `name`: of the node of a file in XML; "" for the file's own."""
    doing = f"read the facts in {path}"
    text = json_file.read_text(path, doing, HINT)
    if text.lstrip().startswith("<"):
        return _xml(path, text, doing, name or path.stem)
    document = json_file.parse(text, doing, HINT, "it is neither JSON nor XML")
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        raise InvalidInput(doing, f"it has no facts of GPUs (its schema is not {SCHEMA})", HINT)
    shape = json_file.fitting(document, _Document, doing, HINT)
    nodes = json_file.read_rows(shape["nodes"], _node, doing, HINT)
    unasked = {printable(node): printable(reason) for node, reason in shape["unasked"].items()}
    return Fleet(nodes, unasked, _seconds(shape["taken"]))


def _node(name: str, facts: object) -> Facts:
    return answers.recorded_subject(facts, fact_types.GpuUse, f"nodes.{name}")


def _xml(path: Path, text: str, doing: str, name: str) -> Fleet:
    """GPUs of one node; what nvidia-smi alone cannot tell is unread."""
    try:
        parsed = gpu_xml.parse(text)
    except ValueError as error:
        raise InvalidInput(doing, str(error), HINT) from error
    reason = "an output of nvidia-smi alone does not tell it"
    unread = dict.fromkeys(("pod_devices", "slurm_jobs", "processes", "pid_namespace"), reason)
    facts: Facts = {
        **dict.fromkeys(typed_json.fields_of(fact_types.GpuUse)),
        **{name: {} for name in ("pods", "containers", "sessions", "users", "slurm_pids")},
        **parsed,
        "unread": {**parsed["unread"], **unread},
    }
    return Fleet({name: facts}, taken=round(path.stat().st_mtime))
