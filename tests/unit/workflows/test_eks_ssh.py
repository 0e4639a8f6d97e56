"""Files that ssh reads for a GPU pod: an entry never leads elsewhere in silence, and the user's file stays."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from gpuctl.core.errors import InvalidInput
from gpuctl.edges.kube.api import Client
from gpuctl.edges.kube.cluster import Cluster
from gpuctl.edges.kube.library import Configuration
from gpuctl.eks.gpu_pod import model
from gpuctl.workflows import eks_ssh
from gpuctl.workflows.eks_access import Place

PLACE = Place("lab", "gpu", "lab", "team", [Path("/etc/kubeconfig")])
POD = {"metadata": {"uid": "1", "annotations": {model.HOST_KEY: "ssh-ed25519 AAAA"}}}


def cluster(server: str = "https://127.0.0.1:1") -> Cluster:
    return Cluster(Client(Configuration(host=server)), "team")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("GPUCTL_CONFIG_DIR", str(tmp_path / "config"))
    return tmp_path


def test_an_entry_that_leads_elsewhere_stays_and_is_named(home: Path) -> None:
    entry = eks_ssh.write_entry(cluster(), PLACE, POD)
    path = home / f"config/ssh/{entry.host}.conf"
    before = path.read_text()
    with pytest.raises(InvalidInput, match=r"leads to .*127\.0\.0\.1:1.*, not to .*127\.0\.0\.1:2") as refused:
        eks_ssh.check_entry(cluster("https://127.0.0.1:2"), PLACE)
    assert str(path) in refused.value.hint
    assert path.read_text() == before
    eks_ssh.write_entry(cluster(), PLACE, {"metadata": {**POD["metadata"], "uid": "2"}})
    assert "HostKeyAlias gpuctl-2" in path.read_text()


def test_each_namespace_context_and_region_has_its_entry(home: Path) -> None:
    aws = replace(PLACE, account="123456789012", region="us-west-2")
    places = [PLACE, replace(PLACE, namespace="other"), replace(PLACE, context="other"), aws]
    places += [replace(aws, region="eu-west-1")]
    names = {eks_ssh.write_entry(cluster(), place, POD).host for place in places}
    assert {path.stem for path in (home / "config/ssh").glob("*.conf")} == names
    assert len(names) == 5


def test_a_cluster_of_another_account_with_the_same_name_is_refused() -> None:
    aws = replace(PLACE, account="123456789012", region="us-west-2")
    eks_ssh.write_entry(cluster(), aws, POD)
    eks_ssh.check_entry(cluster("https://made-again.example.com"), aws)
    with pytest.raises(InvalidInput, match="210987654321"):
        eks_ssh.check_entry(cluster(), replace(aws, account="210987654321"))


def test_a_path_with_a_line_end_never_becomes_a_line_of_the_config(home: Path) -> None:
    with pytest.raises(InvalidInput, match="has a line end"):
        eks_ssh.write_entry(cluster(), replace(PLACE, files=[Path("/a\nProxyCommand id")]), POD)
    assert not list((home / "config/ssh").glob("*.conf"))


def test_a_relative_folder_is_resolved(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(home)
    monkeypatch.setenv("GPUCTL_CONFIG_DIR", "relative")
    entry = eks_ssh.write_entry(cluster(), PLACE, POD)
    assert entry.known_hosts == f"{home}/relative/ssh/{entry.host}.known_hosts"
    assert eks_ssh.include_line() == f'Include "{home}/relative/ssh/*.conf"'


@pytest.mark.parametrize("name", ["a*", "a?", "[a]", "a%h", "$HOME", 'a"'])
def test_a_folder_that_include_expands_is_refused(name: str, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUCTL_CONFIG_DIR", str(home / name))
    with pytest.raises(InvalidInput, match="cannot name it"):
        eks_ssh.folder()
    assert not (home / name).exists()


def test_the_users_file_stays_byte_for_byte(home: Path) -> None:
    path = home / ".ssh/config"
    path.parent.mkdir()
    before = "# Zoë's\r\nHost *\r\n  User zoë\r\n".encode("latin-1")
    path.write_bytes(before)
    eks_ssh.include()
    assert path.read_bytes() == f"{eks_ssh.include_line()}\n".encode() + before
    assert eks_ssh.is_included()
