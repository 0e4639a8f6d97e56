"""Judgement on the GPUs of a pod: as many as requested, values instead of errors, and right products."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from gpuctl.domain.findings import Verdict, overall
from gpuctl.eks.gpu_pod.gpu_test import TORCH, judge_smi, judge_torch

ROW = "{}, Tesla T4, 580.95.05, 15360"  # the form of --format=csv,noheader,nounits, with values of ours
TWO = "\n".join(ROW.format(index) for index in range(2))


@pytest.mark.parametrize(
    ("expected", "code", "output", "verdict", "message"),
    [
        (2, 0, TWO, Verdict.OK, "Tesla T4, 15360 MiB, driver 580.95.05"),
        (4, 0, TWO, Verdict.FAIL, "lists 2 of 4 GPUs"),
        (None, 0, TWO, Verdict.UNKNOWN, "the number requested is not known"),
        (2, None, "", Verdict.FAIL, "the pod has no nvidia-smi"),
        (2, 9, "NVIDIA-SMI has failed", Verdict.FAIL, "exit code 9: NVIDIA-SMI has failed"),
        (2, 0, "", Verdict.UNKNOWN, "printed no list of GPUs: no output"),
        (1, 0, "No devices were found", Verdict.UNKNOWN, "No devices were found"),
        (1, 0, "0, NVIDIA H100, 580.95.05, [GPU is lost]", Verdict.FAIL, "[GPU is lost] for its memory"),
    ],
)
def test_nvidia_smi(expected: int | None, code: int | None, output: str, verdict: Verdict, message: str) -> None:
    findings = list(judge_smi("gpu", expected, code, output))
    assert overall(findings) is verdict
    assert any(message in finding.message for finding in findings)


def result(count: int, wrong: dict[str, str] | None = None, cuda: str | None = "12.8") -> str:
    return json.dumps({"version": "2.8.0", "cuda": cuda, "count": count, "wrong": wrong or {}})


@pytest.mark.parametrize(
    ("expected", "code", "output", "verdict", "message"),
    [
        (2, 0, result(2), Verdict.OK, "a matrix product is right (torch 2.8.0, CUDA 12.8)"),
        (2, 0, f"a warning\n{result(2)}\n", Verdict.OK, "a matrix product is right"),
        (2, 0, result(0, cuda=None), Verdict.FAIL, "torch reaches 0 of 2 GPUs (torch 2.8.0, CUDA none)"),
        (2, 0, result(2, {"1": "a matrix product is wrong"}), Verdict.FAIL, "a matrix product is wrong"),
        (2, 0, "no torch\n", Verdict.WARN, "the image has no torch"),
        (2, None, "", Verdict.WARN, "the image has no torch"),
        (2, 0, "", Verdict.FAIL, "printed no result: no output"),
        (2, 0, "[]", Verdict.FAIL, "printed no result"),
        (2, -11, "Segmentation fault", Verdict.FAIL, "exit code -11: Segmentation fault"),
    ],
)
def test_torch(expected: int | None, code: int | None, output: str, verdict: Verdict, message: str) -> None:
    findings = list(judge_torch("gpu", expected, code, output))
    assert overall(findings) is verdict
    assert any(message in finding.message for finding in findings)


@pytest.mark.parametrize(
    ("torch", "message"),
    [
        ("raise ImportError('libcudart.so.12: cannot open shared object file')", "libcudart.so.12: cannot open"),
        ("import a_module_that_does_not_exist", "No module named 'a_module_that_does_not_exist'"),
    ],
)
def test_a_torch_that_does_not_import_fails_with_its_text(torch: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text(torch)
    done = subprocess.run([sys.executable, "-c", TORCH], capture_output=True, text=True, check=False, cwd=tmp_path)
    (finding,) = judge_torch("gpu", 1, done.returncode, f"{done.stdout}\n{done.stderr}")
    assert finding.verdict is Verdict.FAIL
    assert message in finding.message


def test_the_program_says_that_there_is_no_torch() -> None:
    done = subprocess.run([sys.executable, "-ISc", TORCH], capture_output=True, text=True, check=True)
    (finding,) = judge_torch("gpu", 1, 0, done.stdout)
    assert finding.verdict is Verdict.WARN
