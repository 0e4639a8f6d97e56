"""The catalogues of GPU errors: complete, and every row has a meaning and a source."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuctl.audit import knowledge
from gpuctl.core.errors import InvalidInput

XIDS = knowledge.FAMILIES["xids"]


def mistakes(text: str, folder: Path, name: str = "xids") -> str:
    family = knowledge.FAMILIES[name]
    (folder / family.file).write_text(text)
    with pytest.raises(InvalidInput) as error:
        knowledge.load(family, folder)
    return error.value.wrong


@pytest.mark.parametrize("name", knowledge.FAMILIES)
def test_every_row_has_a_source_and_a_meaning(name: str) -> None:
    rows = knowledge.load(knowledge.FAMILIES[name])
    assert rows
    assert all(row.source for row in rows)
    assert all(row.meaning.endswith(".") for row in rows if name != "nvlink rules")
    assert all(row.investigatory for row in rows if name == "nvlink rules")


def test_the_catalogues_are_whole() -> None:
    assert sorted(knowledge.xids()) == list(range(1, 177))
    assert sorted(knowledge.dcgm_errors()) == list(range(133))
    assert len(knowledge.nvlink_rules()) == 94
    assert {rule.code for rule in knowledge.nvlink_rules()} == set(range(144, 151))
    assert [bit.bit for bit in knowledge.throttle_bits()] == [1 << shift for shift in range(9)]
    assert {20034, 10003, 22013, 26008, *range(23001, 23018)} <= set(knowledge.sxids())


@pytest.mark.parametrize(
    ("code", "bucket"),
    [
        (13, "RESTART_APP"),
        (45, "WORKFLOW_XID_45"),
        (48, "WORKFLOW_XID_48"),
        (63, "IGNORE"),
        (74, "WORKFLOW_NVLINK_ERR"),
        (79, "RESTART_BM"),
        (95, "RESET_GPU"),
        (149, "WORKFLOW_NVLINK5_ERR"),
        (151, "RESTART_VM"),
        (173, None),
    ],
)
def test_buckets_are_those_of_nvidias_page(code: int, bucket: str | None) -> None:
    assert knowledge.xids()[code].immediate == bucket


def test_a_bucket_of_gpuctls_own_is_marked_and_has_its_reason_as_source() -> None:
    assumed = {row.code: row for row in knowledge.xids().values() if row.assumed}
    assert sorted(assumed) == [168, 171, 172]
    assert all(row.immediate is None and "catalogue of 2025" not in row.source for row in assumed.values())


def test_a_row_without_a_meaning_or_source_is_refused(tmp_path: Path) -> None:
    row = "xids:\n  - {code: 79, name: X}\n"
    assert "xids[0].meaning is missing" in mistakes(f"source: s\n{row}", tmp_path)
    wrong = mistakes('xids:\n  - {code: 79, name: X, meaning: "m."}\n', tmp_path)
    assert "has no source, and the file has none" in wrong
    assert mistakes('source: ""\nxids:\n  - {code: 79, name: X, meaning: "m."}\n', tmp_path)


def test_a_code_twice_an_unknown_field_and_an_unknown_bucket_are_refused(tmp_path: Path) -> None:
    row = '  - {code: 79, name: X, meaning: "m."}\n'
    assert "has the code of an earlier row: 79" in mistakes(f"source: s\nxids:\n{row}{row}", tmp_path)
    assert "meening" in mistakes('source: s\nxids:\n  - {code: 7, name: X, meaning: "m.", meening: x}\n', tmp_path)
    wrong = mistakes('source: s\nxids:\n  - {code: 7, name: X, meaning: "m.", immediate: RESET}\n', tmp_path)
    assert "cannot be 'RESET'" in wrong
    assert mistakes("", tmp_path)


def test_a_pattern_has_32_signs(tmp_path: Path) -> None:
    row = (
        "{code: 144, unit: U, v1: '01-', v2: '01-', errorstatus: '0x1', "
        "investigatory: I, severity: S, immediate: IGNORE}"
    )
    assert "32 of the signs" in mistakes(f"source: s\nrules:\n  - {row}\n", tmp_path, "nvlink rules")
