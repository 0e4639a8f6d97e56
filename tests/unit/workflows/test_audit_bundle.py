"""A bundle holds facts and outputs, no secrets, and is judged like the nodes it is of."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from gpuctl.audit import knowledge
from gpuctl.core.errors import GpuctlError, InvalidInput
from gpuctl.domain.findings import Verdict
from gpuctl.nccl.preflight import facts_file
from gpuctl.nccl.preflight.facts_file import Fleet
from gpuctl.workflows import audit, audit_bundle, audit_rules
from tests.rig.healthy_nodes import fleet

CATALOGUE = knowledge.catalogue()


def output(command: str, text: str = "fine\n", code: int = 0) -> dict[str, Any]:
    return {"command": command, "code": code, "text": text}


def outputs(*printed: dict[str, Any], **unread: str) -> dict[str, Any]:
    return {"printed": list(printed) or None, "unread": unread}


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_the_outputs_of_each_node_stand_beside_the_facts_for_the_owner_alone(tmp_path: Path) -> None:
    target = tmp_path / "b"
    printed = outputs(output("nvidia-smi -q -x", "<a/>\n"), output("ethtool -S ens5"), ibstat="not on this host")
    audit_bundle.save(target, Fleet(fleet(2)), {"n1": printed, "n2": outputs(**{"*": "no answer"})})
    assert files(target) == {"facts.json", "n1/nvidia-smi_-q_-x.xml", "n1/ethtool_-S_ens5.txt"}
    assert (target / "n1/nvidia-smi_-q_-x.xml").read_text() == "<a/>\n"
    assert {path.stat().st_mode & 0o077 for path in (target, *target.rglob("*"))} == {0}
    text = (target / "facts.json").read_text()
    assert '"ibstat": "not on this host"' in text
    assert '"all": "no answer"' in text
    assert sorted(path.name for path in tmp_path.iterdir()) == ["b"]


def test_it_is_judged_by_its_facts_and_by_files_that_somebody_added(tmp_path: Path) -> None:
    nodes = fleet(3)
    nodes["n2"]["gpu"]["gpus"][0]["compute_mode"] = "Prohibited"
    recorded = Fleet(nodes, {"n9": "refused"})
    # The facts of n1 were read from an output that says more than they do.
    log = "[ 5.000001] NVRM: Xid (PCI:0000:66:00): 79, GPU has fallen off the bus.\n"
    audit_bundle.save(tmp_path / "b", recorded, {"n1": outputs(output("journalctl -k", log))})
    assert audit.judge_path(tmp_path / "b", CATALOGUE) == audit_rules.judge(recorded, CATALOGUE)
    (tmp_path / "b/n1/dmesg.txt").write_text(log)
    added = [f for f in audit.judge_path(tmp_path / "b", CATALOGUE) if f.check == "xid"]
    assert [(f.verdict, f.subject.split()[0]) for f in added if f.verdict is Verdict.FAIL] == [(Verdict.FAIL, "n1")]


def test_secrets_are_removed_and_xml_stays_xml(tmp_path: Path) -> None:
    line = "<name>python --password hunter22 --token=abcdefgh12</name>\n"
    printed = outputs(output("nvidia-smi -q -x", line), output("nvidia-smi -q", line), lfs="--password hunter22")
    audit_bundle.save(tmp_path / "b", Fleet(fleet(1)), {"n1": printed})
    texts = [path.read_text() for path in (tmp_path / "b").rglob("*") if path.is_file()]
    assert not any(secret in text for text in texts for secret in ("hunter22", "abcdefgh12"))
    written = (tmp_path / "b/n1/nvidia-smi_-q_-x.xml").read_text()
    (name,) = ElementTree.fromstring(written).iter("name")  # noqa: S314 - our own output
    assert (name.text or "").startswith("python --password")


def test_a_secret_outside_an_element_of_a_broken_xml_is_removed(tmp_path: Path) -> None:
    printed = outputs(output("nvidia-smi -q -x", "--password hunter22 <a>cut"))
    audit_bundle.save(tmp_path / "b", Fleet({}), {"n1": printed})
    assert "hunter22" not in (tmp_path / "b/n1/nvidia-smi_-q_-x.xml").read_text()


def test_names_of_nodes_and_commands_never_leave_the_folder(tmp_path: Path) -> None:
    evil = {
        name: outputs(output("../../x"), output("/etc/passwd"), output("..")) for name in ("..", "a/b", "../c", ".")
    }
    audit_bundle.save(tmp_path / "b", Fleet({}), evil)
    assert files(tmp_path) == {
        "b/facts.json",
        *(
            f"b/{node}/{name}"
            for node in ("%2E%2E", "a%2Fb", "..%2Fc", "%2E")
            for name in ("x.txt", "etc_passwd.txt", "output.txt")
        ),
    }


def test_outputs_of_one_file_name_are_not_lost_in_silence(tmp_path: Path) -> None:
    audit_bundle.save(
        tmp_path / "b", Fleet({}), {"n1": outputs(output("ethtool -S a/b", "1"), output("ethtool -S a:b", "2"))}
    )
    assert (tmp_path / "b/n1/ethtool_-S_a_b.txt").read_text() == "1"
    assert '"ethtool -S a:b": "it has the file name of ethtool -S a/b"' in (tmp_path / "b/facts.json").read_text()


def test_a_folder_that_has_something_or_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    audit_bundle.check(tmp_path / "empty")
    (tmp_path / "file").write_text("mine")
    (tmp_path / "link").symlink_to(tmp_path / "empty")
    for name, wrong in (
        ("", "not empty"),
        ("file", "not a folder"),
        ("link", "not a folder"),
        ("no/b", "is not there"),
    ):
        with pytest.raises(InvalidInput, match=wrong):
            audit_bundle.save(tmp_path / name, Fleet({}), {})
    assert files(tmp_path) == {"file"}
    audit_bundle.save(tmp_path / "empty", Fleet({}), {})
    assert files(tmp_path / "empty") == {"facts.json"}


def test_what_cannot_be_written_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(facts_file, "save", full)
    with pytest.raises(GpuctlError, match="No space left on device"):
        audit_bundle.save(tmp_path / "b", Fleet({}), {"n1": outputs(output("ibstat"))})
    assert list(tmp_path.iterdir()) == []


def test_facts_and_outputs_are_told_apart() -> None:
    nodes = fleet(2)
    printed = outputs(output("ibstat"))
    asked = {"n1": {**nodes["n1"], "outputs": printed}, "n2": nodes["n2"]}
    assert audit_bundle.split(Fleet(asked, {"n3": "refused"})) == (Fleet(nodes, {"n3": "refused"}), {"n1": printed})
