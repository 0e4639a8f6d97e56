"""Read the rows of `gpuctl/data/gpu_stack/`: strictly, every mistake with its line."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import gpuctl
from gpuctl.core.strict_yaml import (
    At,
    Choice,
    EmptyFile,
    FieldType,
    Flag,
    ListOf,
    MappingOf,
    Node,
    Parsed,
    Section,
    Text,
    Whole,
    load_file,
)
from gpuctl.gpu_node import rows
from gpuctl.gpu_node.version import driver_version

FOLDER = Path(gpuctl.__file__).parent / "data" / "gpu_stack"
DISTRIBUTIONS = ("ubuntu22.04", "ubuntu24.04", "debian12", "debian13", "rhel8", "rhel9", "rhel10", "amzn2023")
ARCHITECTURES = ("Kepler", "Maxwell", "Pascal", "Volta", "Turing", "Ampere", "Ada", "Hopper", "Blackwell")

_TEXT = Text()
_NAMES = ListOf(_TEXT, "names", may_be_empty=True)
_DRIVER = Parsed(driver_version, "a driver version such as 580.178.04")
_ID = Text(r"[0-9a-f]{4}", "four lower-case hexadecimal digits")
_IDS = ListOf(_ID, "PCI ids", unique=True)
_BRANCH = Whole(0, 999)
_DISTRIBUTIONS = ListOf(Choice(DISTRIBUTIONS), "distributions", unique=True)


def _expression(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(f"is not a regular expression: {error}") from error
    return text


def _rows(make: type[Any], plural: str, required: Mapping[str, FieldType], **optional: FieldType) -> ListOf:
    """A list of rows; `source` is required of each."""

    def row(values: dict[str, Any], node: Node, at: At) -> Any:
        return make(**values)

    fields = {**required, "source": _TEXT}
    return ListOf(Section({**fields, **optional}, tuple(fields), row), plural)


FILES: Mapping[str, Mapping[str, FieldType]] = {
    "branches.yml": {
        "branches": _rows(
            rows.Branch,
            "branches",
            {"branch": _BRANCH, "kind": _TEXT, "max_cuda_major": Whole(1, 99), "proprietary": Flag()},
            end=Text(r"20\d\d-(0[1-9]|1[0-2])", "a month such as 2026-06"),
            last_for=ListOf(Choice(ARCHITECTURES), "architectures"),
        )
    },
    "cuda.yml": {
        "cuda": _rows(rows.Cuda, "versions", {"cuda": Text(r"\d+\.\d+", "a version such as 12.8"), "driver": _DRIVER}),
        "majors": _rows(rows.CudaMajor, "versions", {"major": Whole(1, 99), "branch": _BRANCH}),
    },
    "gpus.yml": {
        "gpus": _rows(
            rows.GpuModel,
            "GPUs",
            {
                "ids": _IDS,
                "model": _TEXT,
                "architecture": Choice(ARCHITECTURES),
                "form": Choice(("pcie", "sxm", "rack", "superchip")),
                "modules": Choice(("open", "proprietary", "either", "grid")),
            },
            subdevices=_IDS,
            least_driver=_DRIVER,
            mig_since=_DRIVER,
            mig=_TEXT,
            why=_TEXT,
        ),
        "architectures": _rows(
            rows.Architecture,
            "architectures",
            {"name": Choice(ARCHITECTURES), "least_driver": _DRIVER, "exact": Flag()},
        ),
    },
    "fabric.yml": {
        "fabric": _rows(
            rows.Fabric,
            "services",
            {
                "name": Choice(("nvlsm", "imex", "fabric_manager")),
                "detect": Choice(("infiniband_vpd", "gpu_form", "nvswitch")),
                "value": _TEXT,
                "services": _NAMES,
                "modules": _NAMES,
                "why": _TEXT,
            },
        )
    },
    "keys.yml": {
        "keys": _rows(
            rows.Key,
            "keys",
            {
                "name": _TEXT,
                "fingerprint": Text(r"[0-9A-F]{40}", "a fingerprint of 40 upper-case hexadecimal digits"),
                "distributions": _DISTRIBUTIONS,
                "uri": Parsed(_expression, "a regular expression"),
            },
            why=_TEXT,
        )
    },
    "repositories.yml": {
        "repositories": _rows(
            rows.Source,
            "repositories",
            {
                "name": _TEXT,
                "component": Choice(("driver", "toolkit")),
                "distributions": _DISTRIBUTIONS,
                **dict.fromkeys(("base", "path", "suite", "key"), _TEXT),
            },
        )
    },
    "packages.yml": {
        "sets": _rows(
            rows.PackageSet,
            "sets",
            {
                "distributions": _DISTRIBUTIONS,
                "repository": Choice(("nvidia", "distribution")),
                "manager": Choice(("apt", "dnf")),
                "branches": ListOf(_BRANCH, "branches"),
                **dict.fromkeys(
                    ("open", "proprietary", "libraries", "fabric_manager", "nvlsm", "imex", "free", "kernel"), _NAMES
                ),
                "pin": _TEXT,
                "lock": _TEXT,
                "headers": _TEXT,
            },
            why=_TEXT,
            stream_open=_TEXT,
            stream_proprietary=_TEXT,
        ),
        "one_version": _rows(
            rows.OneVersion, "parts", {"part": _TEXT, "names": Parsed(_expression, "a regular expression")}
        ),
        "dcgm": _rows(
            rows.Dcgm, "rows", {"cuda_major": Whole(1, 99), "packages": _NAMES, "removes": _NAMES, "unit": _TEXT}
        ),
        "toolkit": _rows(rows.Toolkit, "rows", {"packages": _NAMES, "revision": _TEXT}),
        "efa": _rows(
            rows.Efa,
            "rows",
            {
                "manager": Choice(("apt", "dnf")),
                "distributions": _DISTRIBUTIONS,
                **dict.fromkeys(("record", "libraries", "base"), _TEXT),
            },
            why=_TEXT,
        ),
    },
    "rdma.yml": {
        "gdrcopy": _rows(rows.DkmsModule, "rows", {"packages": _NAMES, "module": _TEXT}),
        "gds": _rows(rows.DkmsModule, "rows", {"packages": _NAMES, "module": _TEXT}),
        "dmabuf": _rows(
            rows.DmaBuf,
            "rows",
            {"driver": _TEXT, "kernel": Text(r"\d+\.\d+", "a release such as 5.12")},
            module=Text(r"\d+\.\d+", "a version such as 1.16"),
        ),
    },
    "nccl_tests.yml": {
        "nccl_tests": _rows(
            rows.NcclTests,
            "rows",
            {
                "version": Text(r"\d+\.\d+\.\d+", "a version such as 2.17.6"),
                "sha256": Text(r"[0-9a-f]{64}", "64 hexadecimal digits"),
            },
        )
    },
    "mig.yml": {
        "mig": _rows(
            rows.Mig,
            "GPUs",
            {
                "gpu": _TEXT,
                "profiles": MappingOf(Text(r"[1-7]g\.\d+gb", "a profile name such as 1g.10gb"), Whole(1, 7)),
            },
            why=_TEXT,
        )
    },
}


@cache
def knowledge() -> rows.Knowledge:
    """All rows that gpuctl ships; `InvalidInput` with every mistake in a file."""
    return load(FOLDER)


def load(folder: Path) -> rows.Knowledge:
    """Rows of a folder with the files of `FILES`."""
    tables: dict[str, Any] = {}
    for name, fields in FILES.items():
        schema = Section(fields, tuple(fields))
        tables |= load_file(folder / name, schema, "use the file of rows", EmptyFile("file of rows"))
    return rows.Knowledge(**tables)
