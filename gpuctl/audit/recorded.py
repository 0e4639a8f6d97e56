"""Recognise what a file records: facts of an earlier audit, nvidia-smi's XML, or a log."""

from __future__ import annotations

import re
from enum import Enum
from pathlib import Path
from typing import Any

from gpuctl.core.errors import InvalidInput
from gpuctl.engine import fact_types, gpu_xml, typed_json

LOOK = 4096  # bytes that are inspected
MOST = 64 << 20  # bytes of an XML file: that of eight GPUs has half a MiB
XML_HINT = "save the whole output of nvidia-smi -q -x"


class Kind(Enum):
    FACTS = "facts"
    XML = "xml"
    LOG = "log"


def kind(path: Path) -> Kind:
    """Kind of a file by its beginning; LOG for standard input, and for what cannot be read."""
    try:
        if str(path) == "-" or not path.is_file():
            return Kind.LOG
        with path.open("rb") as file:
            start = file.read(LOOK)
    except OSError:
        return Kind.LOG
    if re.match(rb'\s*\{\s*"form": *\d', start):
        return Kind.FACTS
    return Kind.XML if b"<nvidia_smi_log>" in start else Kind.LOG


def read_xml(path: Path) -> dict[str, Any]:
    """Facts of a node of which only `nvidia-smi -q -x` is known; raises InvalidInput if the text is not whole."""
    with path.open("rb") as file:
        text = file.read(MOST).decode("utf-8", "replace")
    try:
        parsed = gpu_xml.parse(text)
    except ValueError as error:
        raise InvalidInput(f"read {path}", str(error), XML_HINT) from error
    unread = {} if parsed["driver"] else {"driver": "nvidia-smi names no driver version"}
    return {"gpu": {**dict.fromkeys(typed_json.fields_of(fact_types.GpuFacts)), **parsed, "unread": unread}}
