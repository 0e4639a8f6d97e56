"""`gpuctl reservations disk` against the real service over a real socket; volumes are a stand-in."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from gpuctl.cli.app import app
from gpuctl.core.errors import GpuctlError, InvalidInput
from gpuctl.edges.unix_socket import serving
from gpuctl.reservations.demo import Demo
from gpuctl.reservations.rules.model import Caller, Node, Site
from gpuctl.reservations.service import Service
from gpuctl.reservations.stores.memory import MemoryStore
from tests.rig.reservations.standin_volumes import StandinVolumes

ADA = Caller("ada", "vision")


@pytest.fixture
def socket(tmp_path: Path) -> Iterator[Path]:
    store = MemoryStore(Site(), [Node("gpu-1", "h100", (None,) * 8)])
    service = Service(store, {"gpu-1": Demo().nodes["gpu-1"]}, lambda: 1_700_000_000, disk_agent=StandinVolumes())
    with serving(tmp_path / "s", lambda _, call: service.answer(ADA, call)):
        yield tmp_path / "s"


def run(socket: Path, *words: str) -> Result:
    return CliRunner().invoke(app, ["reservations", "disk", *words, "--socket", str(socket)])


def test_disks_are_made_copied_renamed_and_listed(socket: Path) -> None:
    made = run(socket, "create", "data")
    assert made.output.splitlines()[0] == "disk data is being made"
    assert run(socket, "clone", "data", "copy").exit_code == 0
    assert "disk copy is now models" in run(socket, "rename", "copy", "models").output
    rows = json.loads(run(socket, "list", "--output", "json").output)
    assert [(row["name"], row["state"]) for row in rows] == [("data", "ready"), ("models", "ready")]
    assert "in use by" in run(socket, "list").output


def test_deleting_says_what_goes_and_needs_consent(socket: Path) -> None:
    run(socket, "create", "data")
    run(socket, "create", "other")  # its step reads the volumes again
    unasked = run(socket, "delete", "data")
    assert "The disk data (claim claim-of-ada/data, 1Gi) and everything on it will be deleted" in unasked.stderr
    assert isinstance(unasked.exception, InvalidInput)
    assert run(socket, "delete", "data", "--yes").exit_code == 0
    assert [row["name"] for row in json.loads(run(socket, "list", "--output", "json").output)] == ["other"]


@pytest.mark.parametrize(
    "words",
    [("delete", "none", "--yes"), ("delete", "bob/data", "--yes"), ("create", "a/b"), ("rename", "none", "new")],
)
def test_what_is_not_a_disk_of_the_caller_is_bad_input(socket: Path, words: tuple[str, ...]) -> None:
    refused = run(socket, *words)
    assert isinstance(refused.exception, GpuctlError)
    assert refused.exception.exit_code == 2


def test_a_site_of_hosts_says_that_it_has_no_disks(tmp_path: Path) -> None:
    nodes = [Node("gpu-1", "h100", (None,) * 8)]
    service = Service(MemoryStore(Site(disks=False), nodes), {"gpu-1": Demo().nodes["gpu-1"]}, lambda: 1_700_000_000)
    with serving(tmp_path / "s", lambda _, call: service.answer(ADA, call)):
        for words in (("list",), ("create", "a"), ("clone", "a", "b"), ("delete", "a", "--yes")):
            refused = run(tmp_path / "s", *words)
            assert "sessions of this site have no disks" in str(refused.exception)


def test_deleting_a_disk_in_use_is_refused_before_anything_is_asked(socket: Path) -> None:
    runner = CliRunner()
    for hours in ("1", "1"):
        words = ["reserve", "--hours", hours, "--disk", "data", "--no-wait", "--socket", str(socket)]
        assert runner.invoke(app, words).exit_code == 0
    refused = run(socket, "delete", "data")
    assert "has it or waits for it" in str(refused.exception)
    assert "will be deleted" not in refused.output
    assert "has it" in str(run(socket, "rename", "data", "new").exception)
