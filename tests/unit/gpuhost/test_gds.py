"""GPUDirect Storage on a host: the report of gdscheck, and the counters of nvidia-fs."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.facts import gds
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.facts.gather import gather
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.host import Host

from tests.rig.recordings import recording
from tests.rig.trees.host import put

DATA = Path(__file__).parents[2] / "data/rdma"
REPORT = DATA / "gdscheck-115-forced-compat.txt"
STATS = (DATA / "nvidia-fs-stats-226.txt").read_text()


def script(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def test_the_report_of_gdscheck_is_read_with_what_its_success_hides() -> None:
    report = gds.parse(REPORT.read_text())
    assert report is not None
    assert (report["is_verified"], report["is_compat_forced"], report["supported"]) == (True, True, ["NVMe"])
    assert [text.split()[0] for text in report["gpus_without"]] == ["1"]


@pytest.mark.parametrize(
    ("name", "supported", "gpus"),
    [("h100_8g_nvfs", ["NVMe", "NFS"], 8), ("l40s_p2pdma_580", ["NVMe P2PDMA"], 1)],
)
def test_recorded_reports_are_read(name: str, supported: list[str], gpus: int) -> None:
    report = gds.parse(recording(f"host/gdscheck_p_{name}.txt").read_text())
    rest = {"is_compat_forced": False, "gpus": gpus, "gpus_without": []}
    assert report == {"is_verified": True, "supported": supported, **rest}


@pytest.mark.parametrize("text", ["", "GDS release version: 1.13", "cuInit Failed, error CUDA_ERROR_NO_DEVICE\n"])
def test_other_output_is_unknown(text: str) -> None:
    assert gds.parse(text) is None


def test_completed_operations_are_counted_only_while_the_module_counts_them() -> None:
    assert gds.counters(STATS) == {"reads": 1200, "writes": 40, "active": 0}
    silent = STATS.replace("n=1201 ok=1200 ", "").replace("n=40 ok=40 ", "").replace("Read=0", "Read=3")
    assert gds.counters(silent) == {"reads": None, "writes": None, "active": 3}
    assert gds.counters("NVFS statistics(ver: 4.0)\n") is None


def test_gdscheck_runs_where_cuda_has_it_and_only_if_it_is_asked_for(tmp_path: Path) -> None:
    put(tmp_path, "/sys/class/x", "")
    only = {"only": ["gds"]}
    facts = gather(Host(str(tmp_path)), only)["gds"]
    assert facts["unread"] == {"check": "gdscheck is not installed", "counters": f"{gds.STATS} is missing"}
    program = "/usr/local/cuda-12.9/gds/tools/gdscheck"
    put(tmp_path, program, f'#!/bin/sh\ntest "$1" = -p && exec /bin/cat {REPORT}\n')
    (tmp_path / program[1:]).chmod(0o755)
    put(tmp_path, gds.STATS, STATS)
    facts = gather(Host(str(tmp_path)), only)["gds"]
    assert facts["unread"] == {}
    assert (facts["check"]["is_compat_forced"], facts["counters"]["reads"]) == (True, 1200)
    script(tmp_path / program[1:], "echo 'error: no CUDA device' >&2; exit 1")
    facts = gather(Host(str(tmp_path)), only)["gds"]
    assert (facts["check"], facts["unread"]["check"]) == (None, "gdscheck -p: error: no CUDA device")
    script(tmp_path / program[1:], f"/bin/cat {REPORT}; exit 1")
    facts = gather(Host(str(tmp_path)), only)["gds"]
    assert facts["unread"]["check"] == "gdscheck -p ended with exit status 1 after its success line"
    put(tmp_path, "/proc/driver/nvidia/gpus/0000:10:00.0/information", "")
    put(tmp_path, "/usr/bin/nvidia-smi", "")
    script(tmp_path / "usr/bin/nvidia-smi", "echo 4711, python3")
    (tmp_path / "usr/bin/nvidia-smi").chmod(0o755)
    script(tmp_path / program[1:], f"touch {tmp_path}/run; /bin/cat {REPORT}")
    facts = gather(Host(str(tmp_path)), only)["gds"]
    assert (facts["check"], facts["unread"]["check"][:9]) == (None, "jobs run:")
    assert not (tmp_path / "run").exists()
    assert "gds" not in gather(Host(str(tmp_path)), {"only": ["peer_memory"]})


@pytest.mark.parametrize("path", ["/usr/local/cuda-12.9/gds/tools/gdscheck", "/usr/local/cuda-12.9/gds", "/opt/cuda"])
def test_a_gdscheck_that_others_can_replace_is_not_run(tmp_path: Path, path: str) -> None:
    put(tmp_path, "/sys/class/x", "")
    program = "/usr/local/cuda-12.9/gds/tools/gdscheck"
    put(tmp_path, program, "")
    script(tmp_path / program[1:], f"touch {tmp_path}/run-as-root; /bin/cat {REPORT}")
    put(tmp_path, "/opt/cuda/gds/tools/gdscheck", "")
    script(tmp_path / "opt/cuda/gds/tools/gdscheck", f"touch {tmp_path}/run-as-root; /bin/cat {REPORT}")
    if path == "/opt/cuda":
        (tmp_path / "usr/local/cuda").symlink_to("../../opt/cuda")
    (tmp_path / path[1:]).chmod(0o777)
    facts = gather(Host(str(tmp_path)), {"only": ["gds"]})["gds"]
    assert facts["check"] is None
    assert f"is not run, as {path} can be written by its group or by others" in facts["unread"]["check"]
    assert not (tmp_path / "run-as-root").exists()
