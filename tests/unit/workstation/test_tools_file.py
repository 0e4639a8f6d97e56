"""A file of rows is refused with every mistake, its line and its field; what is written is taken as it stands."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuctl.core.errors import InvalidInput
from gpuctl.workstation.tools import user_rows
from gpuctl.workstation.tools_file import read_rows

ROW = f"""- name: k9s
  why: a test
  source: a test
  required: false
  minimal: 0.50
  release:
    version: 0.50
    url: https://h/k9s-{{version}}_{{os}}_{{arch}}.tar.gz
    member: "{{os}}/k9s"
    pins: {{linux/amd64: {"A" * 64}}}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "tools.yml"


def refused(file: Path, text: str) -> str:
    file.write_text(text)
    with pytest.raises(InvalidInput) as error:
        read_rows(file)
    assert error.value.exit_code == 2
    return str(error.value)


def test_a_version_without_quotes_keeps_its_digits(file: Path) -> None:
    file.write_text(ROW)
    (row,) = read_rows(file)
    assert (row["release"]["version"], row["minimal"], row["required"]) == ("0.50", "0.50", False)
    assert row["release"]["pins"] == {"linux/amd64": "a" * 64}


@pytest.mark.parametrize(
    ("was", "now", "line", "message"),
    [
        ("{version}", "{versoin}", 8, "release.url has the unknown placeholder {versoin}; did you mean version?"),
        ('"{os}/k9s"', '"{o}/k9s"', 9, "release.member has the unknown placeholder {o}"),
        ('"{os}/k9s"', '"k9s}"', 9, "release.member has unmatched braces"),
        ("A" * 64, "A" * 63, 10, "a sha256 has 64 hexadecimal digits"),
        ("linux/amd64", "linux/amd46", 10, "release.pins.linux/amd46 is not known; did you mean linux/amd64?"),
        ("version: 0.50", "version: ../0.50", 7, "release.version is '../0.50'"),
        ("minimal", "minimla", 5, "minimla is not known; did you mean minimal?"),
        ("required: false", "required: maybe", 4, "required is neither true nor false"),
        ("  why: a test\n", "", 1, "why is missing"),
    ],
)
def test_a_mistake_is_reported_with_file_line_and_field(
    file: Path, was: str, now: str, line: int, message: str
) -> None:
    error = refused(file, ROW.replace(was, now, 1))
    assert f"{file}:{line}: row k9s: " in error
    assert message in error


@pytest.mark.parametrize("name", ["../k9s", "K9s", "-k", "a b", ""])
def test_a_name_that_leads_out_of_its_folder_is_refused(file: Path, name: str) -> None:
    assert "not a name of a-z" in refused(file, ROW.replace("name: k9s", f'name: "{name}"'))


def test_the_error_for_invalid_yaml_names_the_file(file: Path) -> None:
    error = refused(file, "- name: k9s\n  why: \x07bell\n")
    assert str(file) in error
    assert "<unicode string>" not in error


def test_an_empty_list_has_no_rows(file: Path) -> None:
    file.write_text("[]\n")
    assert read_rows(file) == []


def test_an_empty_file_and_one_of_comments_are_refused_as_an_empty_tools_file(file: Path) -> None:
    for text in ("", "# none yet\n"):
        assert "is an empty tools file; add rows that start with `- name:`, or remove the file" in refused(file, text)


def test_invalid_utf_8_and_a_folder_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpuctl.workstation.tools.config_dir", lambda: tmp_path)
    (tmp_path / "tools.yml").write_bytes(b"- name: \xff\n")
    with pytest.raises(InvalidInput, match="is not UTF-8"):
        user_rows()
    (tmp_path / "tools.yml").unlink()
    (tmp_path / "tools.yml").mkdir()
    with pytest.raises(InvalidInput, match="Is a directory"):
        user_rows()
