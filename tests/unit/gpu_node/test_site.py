"""A site's `gpu_stack`, from a file and from group variables."""

from __future__ import annotations

from pathlib import Path

import jsonschema  # type: ignore[import-untyped]
import pytest

from gpuctl.core.errors import InvalidInput
from gpuctl.gpu_node.model import StackRequest
from gpuctl.gpu_node.site import read_file, read_variables, schema
from gpuctl.gpu_node.version import driver_version

PATHS = ("auto", "dmabuf", "nvidia_peermem")
WHOLE = {"driver": "580.178.04", "flavour": "open", "cuda": "13.0", "toolkit": "1.20.0", "dcgm": "4.6.0-1"}


def test_a_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "stack.yml"
    path.write_text("gpu_stack:\n" + "".join(f"  {name}: {value}\n" for name, value in WHOLE.items()))
    assert read_file(path) == StackRequest(driver_version("580.178.04"), "open", "13.0", "1.20.0", "4.6.0-1")


@pytest.mark.parametrize(("text", "driver"), [(580, 580), ("580", 580), ("none", None)])
def test_the_driver_may_be_a_branch_or_none(text: object, driver: int | None) -> None:
    assert read_variables({"gpu_stack": {"driver": text}}, "h100") == StackRequest(driver)


def test_efa_has_its_kind_source_and_key() -> None:
    key = "A" * 40
    row = {"driver": "none", "efa": "1.48.0", "efa_kind": "minimal", "efa_source": "https://m/efa/", "efa_key": key}
    request = read_variables({"gpu_stack": row}, "h100")
    assert request == StackRequest(None, efa="1.48.0", efa_kind="minimal", efa_source="https://m/efa", efa_key=key)


@pytest.mark.parametrize(
    ("name", "value", "wrong"),
    [
        ("efa_kind", "minimal", "is set although efa is not"),
        ("efa_source", "https://m/efa", "is set although efa is not"),
        ("efa_source", "/srv/efa", "the address of a mirror"),
        ("efa_key", "4E90 91BC", "a fingerprint of 40 upper-case"),
    ],
)
def test_fields_of_efa_are_refused_where_they_make_no_sense(name: str, value: str, wrong: str) -> None:
    with pytest.raises(InvalidInput) as refusal:
        read_variables({"gpu_stack": {"driver": "none", name: value}}, "h100")
    assert f"gpu_stack.{name}" in refusal.value.wrong
    assert wrong in refusal.value.wrong


def test_every_mistake_has_its_line(tmp_path: Path) -> None:
    path = tmp_path / "stack.yml"
    path.write_text("gpu_stack:\n  driver: latest\n  flavor: open\n  toolkit: 1.20\n")
    with pytest.raises(InvalidInput) as refusal:
        read_file(path)
    lines = refusal.value.wrong.splitlines()
    assert [line.strip().partition(": ")[0].rpartition(":")[2] for line in lines] == ["2", "3", "4"]
    assert "did you mean flavour?" in refusal.value.wrong


def test_mistakes_of_variables_have_their_place() -> None:
    with pytest.raises(InvalidInput) as refusal:
        read_variables({"gpu_stack": {"driver": 570.3, "efa": "new"}}, "h100")
    assert "gpu_stack.driver: is a number, which loses zeros" in refusal.value.wrong
    assert "gpu_stack.efa" in refusal.value.wrong


@pytest.mark.parametrize("variables", [{}, {"gpu_stack": None}, {"gpu_stack": []}, {"gpu_stack": {}}])
def test_missing_variables_are_refused(variables: dict[str, object]) -> None:
    with pytest.raises(InvalidInput):
        read_variables(variables, "h100")


def test_a_flavour_without_driver_is_refused() -> None:
    with pytest.raises(InvalidInput, match="although the driver is none"):
        read_variables({"gpu_stack": {"driver": "none", "flavour": "open"}}, "h100")


def test_the_json_schema_accepts_what_the_reader_accepts() -> None:
    jsonschema.validate({"gpu_stack": WHOLE}, schema())
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"gpu_stack": {"flavour": "closed"}}, schema())


@pytest.mark.parametrize(
    "line",
    ["gdrcopy: 2.5.2-1", "gdrcopy: 2.6-1", "gdrcopy: 2.5-1", *(f"peer_memory: {name}" for name in PATHS)],
)
def test_fields_of_gpudirect_rdma_are_read(tmp_path: Path, line: str) -> None:
    path = tmp_path / "stack.yml"
    path.write_text(f"gpu_stack:\n  driver: none\n  {line}\n")
    name, _, value = line.partition(": ")
    assert getattr(read_file(path), name) == value


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        *((f"gdrcopy: {value}", "a version such as 2.5.2-1") for value in ("2.5.2", "2.6", "2-1", "latest", "v2.6-1")),
        ("peer_memory: on", "auto"),
        ("peer_memory: efa_nv_peermem", "nvidia_peermem"),
        ("peer_memory: DMABUF", "dmabuf"),
    ],
)
def test_wrong_fields_of_gpudirect_rdma_are_refused_with_their_line(tmp_path: Path, line: str, hint: str) -> None:
    path = tmp_path / "stack.yml"
    path.write_text(f"gpu_stack:\n  driver: none\n  {line}\n")
    with pytest.raises(InvalidInput) as refusal:
        read_file(path)
    assert refusal.value.exit_code == 2
    assert f"{path}:3: gpu_stack.{line.partition(':')[0]}" in refusal.value.wrong
    assert hint in refusal.value.wrong
