"""Slurm of a GPU pod, by sinfo's words, and the pod that it runs in."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from gpuctl.eks.gpu_pod import objects, scripts, slurm
from gpuctl.eks.gpu_pod.model import Form


@pytest.mark.parametrize(
    ("output", "ready", "verdict"),
    [
        ("idle gpu:t4:2\n", True, "OK"),
        ("mixed gpu:h100:1,gpu:a100:1\n", True, "OK"),
        ("idle gpu:2(S:0)\n", True, "OK"),
        ("idle (null)\n", True, "FAIL"),
        ("idle gpu:t4:1\n", True, "FAIL"),
        ("idle* gpu:t4:2\n", False, ""),
        ("down gpu:t4:2\n", False, ""),
        ("", False, ""),
    ],
)
def test_a_node_is_ready_and_offers_what_the_pod_requests(output: str, ready: bool, verdict: str) -> None:
    assert slurm.is_ready(output) is ready
    if ready:
        assert str(slurm.judge("gpu", 2, output).verdict) == verdict


def test_a_node_without_gpus_is_named() -> None:
    finding = slurm.judge("gpu", 2, "idle (null)")
    assert finding.message == "Slurm offers no GPU, and the pod requests 2: nvidia-smi lists 0 in it"


def test_only_a_pod_with_slurm_has_its_limits_as_variables() -> None:
    with_slurm, without = (
        {one["name"] for one in objects.pod("gpu", form, "s", "k")["spec"]["containers"][0]["env"]}
        for form in (Form("a", slurm=True), Form("a"))
    )
    assert with_slurm - without == {scripts.CPUS, scripts.MEMORY_MIB}


@pytest.mark.parametrize("script", [scripts.START, scripts.slurm_answers(), scripts.RELOAD])
def test_scripts_are_those_of_any_sh(script: str, tmp_path: Path) -> None:
    (tmp_path / "script").write_text(script)
    for shell in filter(shutil.which, ("sh", "dash", "busybox")):
        words = [shell, "sh"] if shell == "busybox" else [shell]
        subprocess.run([*words, "-n", str(tmp_path / "script")], check=True)
