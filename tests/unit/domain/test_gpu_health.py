"""A GPU is judged by what its driver reports; what the driver does not report never counts as good."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.facts import gpu_xml

from gpuctl.domain import gpu_health
from gpuctl.domain.findings import Verdict

H100 = (Path(__file__).parents[2] / "data/nvidia-smi/570-h100-8gpu.xml").read_text()


def gpu(*changes: tuple[str, str]) -> dict[str, Any]:
    text = H100
    for before, after in changes:
        assert before in text
        text = text.replace(before, after, 1)
    return dict(gpu_xml.parse(text)["gpus"][0])


def test_a_healthy_gpu_has_no_issues() -> None:
    assert gpu_health.issues(gpu()) == []


@pytest.mark.parametrize(
    ("word", "hint"),
    [
        ("[GPU requires reset]", gpu_health.RESET),
        ("GPU is lost", gpu_health.LOST),
        ("[Unknown Error]", gpu_health.LOST),
        ("ERR!", gpu_health.LOST),
    ],
)
@pytest.mark.parametrize("place", ["remapped_row_pending>No<", "gpu_temp>33 C<", "dram_uncorrectable>0<"])
def test_an_error_text_is_a_failure_in_any_field(place: str, word: str, hint: str) -> None:
    element = place.partition(">")[0]
    [issue] = gpu_health.issues(gpu((place, f"{element}>{word}<")))
    assert issue == (Verdict.FAIL, f'nvidia-smi reports "{word.strip("[]")}" for {element}', hint)


def test_one_error_in_many_fields_is_one_issue() -> None:
    text = H100.replace(">No<", ">[Unknown Error]<").replace(">Not Active<", ">[Unknown Error]<")
    [issue] = gpu_health.issues(gpu_xml.parse(text)["gpus"][0])
    assert issue.message.count("Unknown Error") == 1
    assert " more" in issue.message


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("remapped_row_pending>No<", "remapped_row_pending>[N/A]<", "pending repairs are unknown: nvidia-smi does not"),
        ("remapped_row_failure>No<", "remapped_row_failure>Maybe<", "unknown: remap_failure: Maybe"),
        ("dram_uncorrectable>0<", "dram_uncorrectable>[N/A]<", "unknown: uncorrectable: dram_uncorrectable: [N/A]"),
        ("remapped_row_unc>0<", "remapped_row_unc>Insufficient Permissions<", "unknown: remapped: Insufficient"),
    ],
)
def test_a_value_that_could_not_be_read_is_unknown_with_its_reason(before: str, after: str, message: str) -> None:
    [issue] = gpu_health.issues(gpu((before, after)))
    assert issue.verdict is Verdict.UNKNOWN
    assert message in issue.message


def test_memory_whose_state_is_an_error_is_not_called_good() -> None:
    """The error itself is another judgement's: memory alone says that it is unknown."""
    [issue] = gpu_health.memory(gpu(("remapped_row_pending>No<", "remapped_row_pending>GPU requires reset<")))
    assert issue.verdict is Verdict.UNKNOWN


def test_a_known_fault_is_reported_next_to_unknown_values() -> None:
    changes = (
        ("remapped_row_failure>No<", "remapped_row_failure>Yes<"),
        ("dram_uncorrectable>0<", "dram_uncorrectable><"),
    )
    assert [issue.verdict for issue in gpu_health.issues(gpu(*changes))] == [Verdict.FAIL, Verdict.UNKNOWN]


@pytest.mark.parametrize(
    ("element", "message"),
    [
        ("unrepairable_memory", "its memory cannot be repaired"),
        ("tpc_repair_pending", "a repair of a memory channel or a TPC is pending"),
        ("channel_repair_pending", "a repair of a memory channel or a TPC is pending"),
    ],
)
def test_repairs_that_failed_or_are_pending_fail(element: str, message: str) -> None:
    [issue] = gpu_health.issues(gpu(("<ecc_errors>", f"<ecc_errors><{element}>Yes</{element}>")))
    assert (issue.verdict, issue.message) == (Verdict.FAIL, message)
    [unclear] = gpu_health.issues(gpu(("<ecc_errors>", f"<ecc_errors><{element}>Perhaps</{element}>")))
    assert unclear.verdict is Verdict.UNKNOWN
