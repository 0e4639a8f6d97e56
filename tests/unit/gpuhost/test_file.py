"""Small files that are managed as a whole."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.kinds import file

from tests.rig.trees.host import changed, content, link, put, small_server, states, tune, undo

KNOB = "file./etc/profile.d/cuda.sh"


def value_of(content: str, mode: str = "0644") -> str:
    kind = file.type_of("/etc/profile.d/cuda.sh")
    assert kind is not None
    return kind.check({"content": content, "mode": mode})


def test_a_new_file_comes_and_goes(tmp_path: Path) -> None:
    root = small_server(tmp_path)
    before = content(root)
    assert changed(tune(root, {KNOB: value_of("export A=1\n", "0755")}, check=True)) == {KNOB}
    tune(root, {KNOB: value_of("export A=1\n", "0755")})
    path = root / "etc/profile.d/cuda.sh"
    assert (path.read_text(), path.stat().st_mode & 0o777) == ("export A=1\n", 0o755)
    assert changed(tune(root, {KNOB: value_of("export A=1\n", "0755")})) == set()
    undo(root)
    assert content(root) == before


def test_an_old_file_comes_back_with_its_mode_and_bytes(tmp_path: Path) -> None:
    root = small_server(tmp_path)
    path = root / "etc/profile.d/cuda.sh"
    put(root, "/etc/profile.d/cuda.sh", "", 0o600)
    path.write_bytes(b"caf\xe9\r\nno newline at the end")
    tune(root, {KNOB: value_of("export A=1\n")})
    undo(root)
    assert (path.read_bytes(), path.stat().st_mode & 0o777) == (b"caf\xe9\r\nno newline at the end", 0o600)


def test_the_mode_alone_is_a_difference(tmp_path: Path) -> None:
    root = small_server(tmp_path)
    put(root, "/etc/profile.d/cuda.sh", "export A=1\n", 0o600)
    assert states(tune(root, {KNOB: value_of("export A=1\n")}, check=True)) == {KNOB: "differs"}


def test_an_edit_by_somebody_else_is_a_conflict(tmp_path: Path) -> None:
    root = small_server(tmp_path)
    tune(root, {KNOB: value_of("export A=1\n")})
    put(root, "/etc/profile.d/cuda.sh", "export A=2\n")
    assert states(undo(root)) == {KNOB: "conflict"}
    assert (root / "etc/profile.d/cuda.sh").read_text() == "export A=2\n"


@pytest.mark.parametrize(
    "path",
    ["/proc/sys/vm/swappiness", "/etc/sysctl.d/99-zz-gpuctl.conf", "/var/lib/gpuctl/records/1.json", "/etc/fstab"],
)
def test_a_file_of_another_knob_is_refused(path: str) -> None:
    kind = file.type_of(path)
    assert kind is not None
    with pytest.raises(ValueError, match="other knobs manage"):
        kind.check("x\n")


@pytest.mark.parametrize("path", ["etc/x", "/etc/../x", "/", "/etc/x/"])
def test_only_a_plain_absolute_path_names_a_file(path: str) -> None:
    assert file.type_of(path) is None


def test_a_file_that_undo_could_not_restore_is_refused(tmp_path: Path) -> None:
    root = small_server(tmp_path)
    link(root, "/etc/profile.d/cuda.sh", "/usr/share/cuda.sh")
    answer = tune(root, {KNOB: value_of("x\n"), "file./etc/profile.d": value_of("x\n")})
    assert set(states(answer).values()) == {"refused"}
    assert "a link to /usr/share/cuda.sh" in answer["knobs"][0]["reason"]


def test_no_answer_has_the_content_of_a_file(tmp_path: Path) -> None:
    root = small_server(tmp_path)
    put(root, "/etc/profile.d", "a file where a folder should be")
    answers = [
        tune(root, {KNOB: value_of("secret\n")}),
        tune(root, {"file./etc/token": value_of("secret\n")}),
        undo(root),
    ]
    assert states(answers[0]) == {KNOB: "failed"}
    assert states(answers[1]) == {"file./etc/token": "ok"}
    assert "secret" not in json.dumps(answers)


@pytest.mark.parametrize(
    "value",
    [
        1,
        {"mode": "0644"},
        {"content": "x", "mode": "644"},
        {"content": "x", "mode": 420},
        {"content": "x", "owner": "root"},
        {"content": "x", "colour": "red"},
    ],
)
def test_a_wrong_value_is_refused(value: object) -> None:
    kind = file.type_of("/etc/x")
    assert kind is not None
    with pytest.raises(ValueError, match="must be"):
        kind.check(value)
