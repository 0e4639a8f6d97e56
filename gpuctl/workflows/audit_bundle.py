"""A folder with the facts of an audit and, for each node, what its programs printed: to judge elsewhere, or to send."""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypedDict
from urllib.parse import quote
from xml.sax.saxutils import escape, unescape

from gpuctl.core import json_file
from gpuctl.core.errors import GpuctlError, InvalidInput
from gpuctl.core.redact import removed
from gpuctl.nccl.preflight import facts_file
from gpuctl.nccl.preflight.facts_file import Fleet

FACTS_FILE = "facts.json"
LONGEST = 80  # characters of a file's name
_DOING, _HINT = "save a bundle in {}", "choose a folder that is empty or does not exist"
_ELEMENT_TEXT = re.compile(r">([^<>]+)<")

Outputs = Mapping[str, Mapping[str, Any]]  # node -> {printed, unread}: facts/outputs.py


class _OfNode(TypedDict):
    """Outputs of a node. `files`: name -> its command; `unread`: command -> why it has no file."""

    folder: str
    files: dict[str, str]
    unread: dict[str, str]


class _Index(TypedDict, total=False):
    outputs: dict[str, _OfNode]


def is_folder(path: str) -> bool:
    """True if a path stands for a folder: it is one, or is written with a final slash."""
    return path.endswith("/") or Path(path).is_dir()


def check(folder: Path) -> None:
    """InvalidInput unless a bundle can be written there."""
    doing = _DOING.format(folder)
    if folder.exists() or folder.is_symlink():
        if not folder.is_dir() or folder.is_symlink():
            raise InvalidInput(doing, "it is not a folder", _HINT)
        if any(folder.iterdir()):
            raise InvalidInput(doing, "it is not empty", _HINT)
    if not folder.absolute().parent.is_dir():
        raise InvalidInput(doing, f"{folder.absolute().parent} is not there", "create it, or choose another folder")


def split(fleet: Fleet) -> tuple[Fleet, Outputs]:
    """The facts that are judged, and the outputs beside them."""
    outputs = {node: facts["outputs"] for node, facts in fleet.nodes.items() if "outputs" in facts}
    judged = {node: {n: value for n, value in facts.items() if n != "outputs"} for node, facts in fleet.nodes.items()}
    return replace(fleet, nodes=judged), outputs


def save(folder: Path, fleet: Fleet, outputs: Outputs) -> None:
    """Write the bundle as a whole or not at all, for its owner alone; `fleet`: without secrets (workflows/audit.py).

    What looks like a secret in an output is removed. Raises InvalidInput as `check` does, GpuctlError if it cannot be
    written.
    """
    check(folder)
    target = folder.absolute()
    try:
        made = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
        try:
            index = {node: _save_node(made, node, printed) for node, printed in outputs.items()}
            facts_file.save(made / FACTS_FILE, fleet, {"outputs": index})
            made.rename(target)  # takes the place of an empty folder
        except BaseException:
            shutil.rmtree(made, ignore_errors=True)
            raise
    except OSError as error:
        raise GpuctlError(_DOING.format(folder), error.strerror or str(error), "choose another folder") from error


def _save_node(bundle: Path, node: str, outputs: Mapping[str, Any]) -> _OfNode:
    folder = bundle / _folder_name(node)
    folder.mkdir(mode=0o700)
    unread = {command: _without_secrets(reason) for command, reason in outputs["unread"].items() if command != "*"}
    files: dict[str, str] = {}
    for output in outputs.get("printed") or ():
        name = _file_name(output["command"])
        if name in files:
            unread[output["command"]] = f"it has the file name of {files[name]}"
            continue
        files[name] = output["command"]
        clean = _without_secrets_in_xml if name.endswith(".xml") else _without_secrets
        (folder / name).write_text(clean(output["text"]), errors="replace")
        (folder / name).chmod(0o600)
    if "*" in outputs["unread"]:
        unread["all"] = _without_secrets(outputs["unread"]["*"])
    return {"folder": folder.name, "files": files, "unread": unread}


def _without_secrets(text: str) -> str:
    return removed(text)[0]


def _without_secrets_in_xml(text: str) -> str:
    """Without secrets in the texts of its elements, so that it stays XML; else as any text."""
    if removed(_ELEMENT_TEXT.sub("><", text))[1]:
        return _without_secrets(text)
    return _ELEMENT_TEXT.sub(lambda found: f">{escape(_without_secrets(unescape(found[1])))}<", text)


def _folder_name(node: str) -> str:
    """A name that differs for different nodes, and is one folder for any text."""
    return quote(node, safe="") if node.strip(".") else node.replace(".", "%2E")


def _file_name(command: str) -> str:
    """A host answers the command: any text becomes a plain name."""
    name = re.sub(r"[^\w.=-]+", "_", command, flags=re.ASCII).lstrip("._")[:LONGEST] or "output"
    return name + (".xml" if command.endswith(" -x") else ".txt")


def evidence(facts: Path) -> set[Path]:
    """Files beside a facts file that record what its facts were read from: they are not judged again."""
    doing = f"read the facts in {facts}"
    document: Any = json_file.load(facts, doing, "")
    index = json_file.fitting(document, _Index, doing, "") if isinstance(document, dict) else {}
    return {
        facts.parent / node["folder"] / name for node in index.get("outputs", {}).values() for name in node["files"]
    }
