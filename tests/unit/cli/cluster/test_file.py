"""The commands on cluster files, as a user types them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from gpuctl.cli.cluster.group import group
from gpuctl.cluster.clusterfile import schema
from gpuctl.core.errors import InvalidInput
from tests.rig.cluster.files import OPENSHIFT, write
from tests.rig.cluster.golden import FOLDER


def run(*words: str) -> Result:
    return CliRunner().invoke(group, words)


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with one cluster file that can be used, and one that cannot."""
    (tmp_path / "clusters").mkdir()
    (tmp_path / "clusters/broken.yaml").write_text("cluster: {name: broken}\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GPUCTL_CONFIG_DIR", str(tmp_path / "config"))
    return write(tmp_path / "clusters")


def test_list_shows_what_can_be_used_and_what_cannot(lab: Path) -> None:
    lines = run("list").stdout.splitlines()
    assert next(line for line in lines if line.startswith("lab ")).split()[1:7] == [
        "kubernetes",
        "team",
        "-",
        "2",
        "x",
        "8",
    ]
    assert next(line for line in lines if line.startswith("broken ")).endswith("mistakes")
    listed = {each["name"]: each for each in json.loads(run("list", "-o", "json").stdout)}
    assert listed["lab"]["mistakes"] == []
    assert listed["broken"]["cluster"] is None


def test_show_tells_what_the_file_says_from_what_is_the_default(lab: Path) -> None:
    lines = {line.split()[0]: line for line in run("show", "lab").stdout.splitlines() if line}
    assert lines["gpus.per_node"].split()[1:3] == ["8", "file"]
    assert lines["ports.master"].split()[1:3] == ["29500", "default"]
    shown = yaml.safe_load(run("show", "lab", "-o", "yaml").stdout)
    assert (shown["storage"]["datasets_size"], shown["network"]["tcp"]["interface_exclude"]) == (
        "500Gi",
        ["lo", "docker0"],
    )


def test_validate_says_ok_or_every_mistake(lab: Path) -> None:
    assert run("validate", "lab").stdout.endswith("lab.yaml: OK\n")
    broken = run("validate", "broken")
    assert isinstance(broken.exception, InvalidInput)
    told = run("validate", "broken", "-o", "json")
    assert told.exit_code == 2
    assert len(json.loads(told.stdout)["mistakes"]) == broken.exception.wrong.count("\n") + 1 > 3


def test_the_schema_is_printed_as_it_is_made() -> None:
    assert json.loads(run("schema").stdout) == yaml.safe_load(run("schema", "-o", "yaml").stdout) == schema.document()
    assert "storage.mode" in run("schema", "-o", "table").stdout


def test_render_prints_the_objects() -> None:
    assert run("render", str(OPENSHIFT)).stdout == (FOLDER / "h100-roce-openshift-rdma.yaml").read_text()
    tcp = run("render", str(OPENSHIFT), "--mode", "tcp", "--nodes", "4", "--environment", "alice")
    assert tcp.stdout == (FOLDER / "h100-roce-openshift-tcp.yaml").read_text()
    assert run("render", str(OPENSHIFT), "--single").stdout == (FOLDER / "h100-roce-openshift-single.yaml").read_text()
    listed = json.loads(run("render", str(OPENSHIFT), "-o", "json").stdout)
    assert (listed["kind"], len(listed["items"])) == (
        "List",
        len(list(yaml.safe_load_all(run("render", str(OPENSHIFT)).stdout))),
    )


def test_render_refuses_what_the_file_cannot_do(lab: Path) -> None:
    refused = run("render", "lab", "--mode", "rdma").exception
    assert isinstance(refused, InvalidInput)
    assert refused.hint == "use --mode tcp"


@pytest.mark.parametrize("words", [("deploy", "lab"), ("scale", "lab", "--nodes", "2")], ids=lambda words: words[0])
@pytest.mark.parametrize("seconds", ["0.5", "-1", "nan"])
def test_pods_are_waited_for_whole_seconds_or_not_at_all(lab: Path, words: tuple[str, ...], seconds: str) -> None:
    refused = run(*words, "--timeout", seconds)
    assert (refused.exit_code, "Invalid value for '--timeout'" in refused.stderr) == (2, True)
