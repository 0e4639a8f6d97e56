"""Read a site's `gpu_stack`, from a file or from group variables: strictly, every mistake with its place."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gpuctl.core.errors import InvalidInput
from gpuctl.core.strict_yaml import (
    At,
    Choice,
    EmptyFile,
    ListOf,
    Mistakes,
    Node,
    Parsed,
    Schema,
    Section,
    Text,
    load_file,
)
from gpuctl.gpu_node.model import StackRequest
from gpuctl.gpu_node.version import DriverVersion, driver_version

EXAMPLE = "as in gpu_stack: {driver: 580.178.04, flavour: auto, toolkit: 1.20.0}"
EMPTY = EmptyFile("GPU stack", EXAMPLE)
NONE = "none"


def _driver(text: str) -> DriverVersion | int | str | None:
    if text == NONE:
        return NONE
    return int(text) if re.fullmatch(r"[1-9]\d\d", text) else driver_version(text)


def _source(text: str) -> str | None:
    return text if text == "nvidia" or _address(text) else None


def _address(text: str) -> str | None:
    # No user and password: addresses are shown, logged and recorded.
    return text.rstrip("/") if re.fullmatch(r"(https?://[^\s/@]+(/\S*)?|file:/\S*)", text) else None


def _request(values: dict[str, Any], node: Node, at: At) -> StackRequest | None:
    driver = values["driver"]
    if driver == NONE and values.get("flavour", "auto") != "auto":
        at.inside("flavour").refuse(node, "is set although the driver is none", "leave it out")
        return None
    lonely = [] if "efa" in values else [name for name in OF_EFA if name in values]
    for name in lonely:
        at.inside(name).refuse(node, "is set although efa is not", "set efa: 1.48.0, or leave it out")
    is_built = values.get("nccl_tests", NONE)[0] != "/" and values.get("nccl_tests", NONE) != NONE
    unused = [] if is_built else [name for name in OF_BUILD if name in values]
    for name in unused:
        at.inside(name).refuse(node, "is set although nccl_tests is no version to build", "leave it out")
    if lonely or unused:
        return None
    if values.get("nccl_tests") == NONE:
        values = {**values, "nccl_tests": None}
    return StackRequest(**{**values, "driver": None if driver == NONE else driver})


OF_EFA = ("efa_kind", "efa_key", "efa_source")
OF_BUILD = ("nccl_tests_source", "nccl_tests_sha256")
_VERSION = r"\d+\.\d+\.\d+"
FIELDS = Section(
    {
        "driver": Parsed(_driver, "a version such as 580.178.04, a branch such as 580, or none"),
        "flavour": Choice(("auto", "open", "proprietary")),
        "cuda": Text(r"\d{2}\.\d", "a CUDA version such as 12.8"),
        "toolkit": Text(_VERSION, "a version such as 1.20.0"),
        "dcgm": Text(rf"{_VERSION}-\d+", "a version such as 4.6.0-1"),
        "efa": Text(_VERSION, "a version such as 1.48.0"),
        "efa_kind": Choice(("full", "minimal")),
        "efa_key": Text(r"[0-9A-F]{40}", "a fingerprint of 40 upper-case hexadecimal digits"),
        "efa_source": Parsed(_address, "the address of a mirror, or of a folder on the host (file:/)"),
        "peer_memory": Choice(("auto", "dmabuf", "nvidia_peermem")),
        "gdrcopy": Text(r"\d+\.\d+(\.\d+)?-\d+", "a version such as 2.5.2-1"),
        "gds": Text(rf"{_VERSION}-\d+", "a version of nvidia-fs such as 2.26.6-1"),
        "nccl_tests": Text(
            rf"{_VERSION}|(/[\w.+@-]+)+|{NONE}", "a version such as 2.17.6, the folder of the site's build, or none"
        ),
        "nccl_tests_source": Parsed(_address, "the address of a mirror, or of a folder on the host (file:/)"),
        "nccl_tests_sha256": Text(r"[0-9a-f]{64}", "64 lower-case hexadecimal digits"),
        "repository": Choice(("nvidia", "distribution")),
        "source": Parsed(_source, "nvidia, or the address of a mirror (https://, http:// or file:/)"),
        "imex_nodes": ListOf(Text(r"[0-9A-Fa-f.:]+", "the address of a tray"), "addresses", unique=True),
        "without": ListOf(
            Text(r"[a-z0-9][a-z0-9+.-]+", "a package such as nvidia-persistenced"), "packages", unique=True
        ),
        "removable": ListOf(Text(r"[A-Za-z0-9][\w+.-]+", "a package such as cuda-12-9"), "packages", unique=True),
    },
    required=("driver",),
    make=_request,
)
FILE = Section({"gpu_stack": FIELDS}, required=("gpu_stack",))


def read_file(path: Path) -> StackRequest:
    """The request of a site's file; `InvalidInput` with every mistake and its line."""
    request: StackRequest = load_file(path, FILE, "use the site's file", EMPTY, EXAMPLE)["gpu_stack"]
    return request


def read_variables(variables: Mapping[str, object], place: str) -> StackRequest:
    """The request of a group's variables; `InvalidInput` with every mistake below `place` (the group's name)."""
    mistakes = Mistakes()
    value = variables.get("gpu_stack")
    for name, item in value.items() if isinstance(value, Mapping) else ():
        # 570.30 is the number 570.3 when it arrives; a CUDA version has one digit after the point.
        if isinstance(item, float) and name != "cuda":
            mistakes.add(f"gpu_stack.{name}", f"gpu_stack.{name}", "is a number, which loses zeros", "put it in quotes")
    request: StackRequest = FIELDS.read(_node(value, "gpu_stack"), At("gpu_stack", mistakes))
    if mistakes.items:
        raise InvalidInput(f"use gpu_stack of {place}", "\n  ".join(map(str, mistakes.items)), EXAMPLE)
    return request


def plain(request: StackRequest) -> dict[str, Any]:
    """The request as a site writes it; `read_variables` is the inverse."""
    driver = NONE if request.driver is None else str(request.driver)
    written = {name: getattr(request, name) for name in FIELDS.fields if name != "driver"}
    lists = {name: list(value) if isinstance(value, tuple) else value for name, value in written.items()}
    return {"driver": driver, **{name: value for name, value in lists.items() if value not in (None, [])}}


def schema() -> Schema:
    """JSON Schema of a site's file."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **FILE.schema()}


def _node(value: object, path: str) -> Node:
    if isinstance(value, Mapping):
        return Node({str(key): _node(item, f"{path}.{key}") for key, item in value.items()}, path)
    if isinstance(value, list):
        return Node([_node(item, f"{path}[{number}]") for number, item in enumerate(value)], path)
    return Node("" if value is None else str(value), path)
