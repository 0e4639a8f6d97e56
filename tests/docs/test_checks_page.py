"""The page of checks is generated from the data, and the data have every check that a command can print."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from docs import generate
from gpuctl.audit import knowledge
from gpuctl.cluster.doctor.model import Name
from gpuctl.cluster.doctor.troubles import TROUBLES
from gpuctl.domain import kernel_faults
from gpuctl.workflows import explain
from tests.rig.source_files import ROOT, tree

MAKERS = {"ok", "warn", "unknown", "fail", "or_ok", "Finding", "unread", "equal", "GpuRule"}
CONSTANTS = {"RULE", "CHECK", "FILE", "rule", "check"}
# Folders and files with checks -> the families that have them.
HOMES = {
    "gpuctl/audit": ("audit",),
    "gpuctl/workflows/audit_rules.py": ("audit",),
    "gpuctl/domain/slurm_states.py": ("audit", "nodes"),
    "gpuctl/nodes": ("nodes",),
    "gpuctl/domain/job_log.py": ("incident",),
    "gpuctl/domain/storage_load.py": ("incident",),
    "gpuctl/incident/storage.py": ("incident",),
    "gpuctl/nccl/preflight": ("preflight",),
    "gpuctl/nccl/judge": ("judge",),
    "gpuctl/nccl/advise": ("judge",),
    "gpuctl/subnets": ("subnets",),
    "gpuctl/eks": ("eks",),
    "gpuctl/workflows/eks_addresses.py": ("eks",),
    "gpuctl/workflows/eks_pod.py": ("eks",),
    "gpuctl/workflows/eks_pod_status.py": ("eks",),
    "gpuctl/workflows/eks_prices.py": ("eks",),
    "gpuctl/workflows/eks_status.py": ("eks",),
}


def checks_in(code: ast.Module) -> Iterator[str]:
    """Names that this code gives to findings."""
    for node in ast.walk(code):
        if isinstance(node, ast.Call):
            maker = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
            named = [keyword.value for keyword in node.keywords if keyword.arg == "check"]
            yield from _texts([*(node.args[:1] if maker in MAKERS else []), *named])
        elif isinstance(node, ast.Assign):
            targets, values = _unpacked(node)
            pairs = zip(targets, values, strict=True)
            yield from _texts(value for target, value in pairs if getattr(target, "id", "") in CONSTANTS)


def _texts(values: Iterable[ast.expr]) -> Iterator[str]:
    constants = (value.value for value in values if isinstance(value, ast.Constant))
    return (value for value in constants if isinstance(value, str) and value)


def _unpacked(node: ast.Assign) -> tuple[list[ast.expr], list[ast.expr]]:
    """Targets and values, also of `rule, findings = "nccl-tests", []`."""
    target = node.targets[0]
    if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
        return target.elts, node.value.elts
    return [target], [node.value]


@pytest.mark.parametrize("home", HOMES)
def test_every_check_has_a_row(home: str) -> None:
    path = ROOT / home
    files = sorted(path.rglob("*.py")) if path.is_dir() else [path]
    names = {name for file in files for name in checks_in(tree(file))}
    rows = {row.name for row in knowledge.checks() if row.family in HOMES[home]}
    assert names
    assert names - rows == set()


@pytest.mark.parametrize("trouble", TROUBLES)
def test_every_check_of_the_doctor_has_a_row_and_no_row_is_of_another(trouble: Name) -> None:
    rows = {row.name for row in knowledge.checks() if row.family == f"doctor {trouble}"}
    assert {check.name for check in TROUBLES[trouble].checks} == rows


def test_every_check_of_kernel_messages_has_a_row() -> None:
    rows = {row.name for row in knowledge.checks() if row.family == "audit"}
    assert {fault.check for fault in kernel_faults.FAULTS} - rows == set()


def test_generating_the_page_again_changes_nothing() -> None:
    text = generate.CHECKS_PAGE.read_text()
    assert generate.checks_page(text) == text, "run `python docs/generate.py`"


def test_every_family_has_a_page_and_no_page_is_left_over() -> None:
    pages = generate.family_pages()
    assert {path.name: path.read_text() for path in generate.CHECKS_FOLDER.iterdir()} == {
        path.name: text for path, text in pages.items()
    }, "run `python docs/generate.py`, and remove pages of families that are gone"


def test_every_link_of_the_pages_leads_somewhere() -> None:
    for path, text in generate.family_pages().items():
        for page, anchor in re.findall(r"\]\((\.\./[\w-]+\.md)(?:#([\w-]+))?\)", text):
            target = (path.parent / page).resolve()
            headings = re.findall(r"^#+ (.+)$", target.read_text(), re.MULTILINE)
            assert not anchor or anchor in {generate._anchor(heading) for heading in headings}


def test_every_family_has_a_row_at_least() -> None:
    assert {row.family for row in knowledge.checks()} == set(generate.FAMILIES)


def test_every_row_can_be_explained_by_its_name() -> None:
    for row in knowledge.checks():
        [one] = explain.explain(f"check {row.key.replace('/', ' ')}")
        assert (one.kind, one.name, one.meaning, one.source) == ("check", row.name, row.meaning, row.source)


@pytest.mark.parametrize("kind", ["kernel", "setting"])
def test_every_fault_and_setting_can_be_explained(kind: str) -> None:
    names = explain.names(kind)
    assert names
    assert [explain.explain(f"{kind} {name}")[0].name for name in names] == names


def test_the_ten_findings_have_a_section_each() -> None:
    text = (Path(generate.__file__).with_name("when.md")).read_text()
    sections = text.split("\n## ")[1:]
    assert len(sections) >= 10
    assert [section for section in sections if "**Vendor:**" not in section or "**Do:**" not in section] == []
