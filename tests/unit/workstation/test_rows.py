"""The rows of the tools: nothing is unexplained, and no pin is anything but a sha256."""

from __future__ import annotations

import base64
import re
from typing import Any

import pytest

from gpuctl.workstation.tools import rows

KNOWN = {
    *("name", "why", "source", "required", "optional", "program", "minimal", "packages", "by_hand"),
    *("version_arguments", "version_pattern", "release", "pip", "npm", "this"),
}


@pytest.mark.parametrize("row", rows(), ids=lambda row: row["name"])
def test_a_row_has_a_reason_a_source_and_no_unknown_key(row: dict[str, Any]) -> None:
    assert row["why"]
    assert row["source"]
    assert not set(row) - KNOWN
    assert set(row.get("packages", {})) <= {"debian", "redhat", "brew"}


@pytest.mark.parametrize("row", [r for r in rows() if "release" in r], ids=lambda row: row["name"])
def test_every_release_has_pins_for_known_systems(row: dict[str, Any]) -> None:
    release = row["release"]
    assert release["pins"]
    assert release["checksums"]
    for system, pin in release["pins"].items():
        assert re.fullmatch(r"(linux|darwin)/(amd64|arm64)", system)
        assert re.fullmatch(r"[0-9a-f]{64}", pin)
    assert len(set(release["pins"].values())) == len(release["pins"])


@pytest.mark.parametrize("row", [r for r in rows() if "pip" in r], ids=lambda row: row["name"])
def test_every_file_from_pypi_has_a_sha256(row: dict[str, Any]) -> None:
    hashes = row["pip"]["hashes"]
    assert f"{row['pip']['package']}=={row['pip']['version']}" in hashes
    for name, some in hashes.items():
        assert re.fullmatch(r"[\w-]+==[\d.]+", name)
        assert some
        assert all(re.fullmatch(r"[0-9a-f]{64}", one) for one in some)


@pytest.mark.parametrize("row", [r for r in rows() if "npm" in r], ids=lambda row: row["name"])
def test_every_package_from_npm_has_its_integrity(row: dict[str, Any]) -> None:
    known = [row["npm"]["integrity"], *(system["integrity"] for system in row["npm"]["systems"].values())]
    assert len(set(known)) == len(known)
    for one in known:
        assert one.startswith("sha512-")
        assert len(base64.b64decode(one.removeprefix("sha512-"), validate=True)) == 64


def test_a_row_has_one_source_of_installation() -> None:
    sources = {row["name"]: {"release", "pip", "npm", "this"} & set(row) for row in rows()}
    assert all(len(some) < 2 for some in sources.values())


def test_only_tmux_and_git_are_required() -> None:
    assert [row["name"] for row in rows() if row.get("required")] == ["tmux", "git"]
