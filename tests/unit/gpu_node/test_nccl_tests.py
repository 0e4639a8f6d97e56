"""nccl-tests in the plan of a host: built, up to date, refused with every reason, or waiting for the driver or EFA."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from typing import Any

import pytest

from gpuctl.core.errors import InvalidInput
from gpuctl.domain.findings import Verdict
from gpuctl.gpu_node import desired, verify
from gpuctl.gpu_node.knowledge import knowledge
from gpuctl.gpu_node.model import HostGpuFacts, PciGpu, StackPlan, StackRequest
from gpuctl.gpu_node.nccl_tests import NAME, question
from gpuctl.gpu_node.plan import plan
from gpuctl.gpu_node.site import read_variables
from gpuctl.gpu_node.version import driver_version
from gpuctl.workflows import gpu_node_role
from tests.rig.gpu_stack_machines import BARE

KNOWN, DAY = knowledge(), date(2026, 11, 1)
VERSION = "2.17.6"
PIN = next(row.sha256 for row in KNOWN.nccl_tests if row.version == VERSION)[:12]
REQUEST = StackRequest(None, nccl_tests=VERSION)
H100 = PciGpu("0000:10:00.0", "2330", "10de", "16c1")
HOST = replace(BARE, gpus=(H100,), running_module="580.178.04", running_open=True, compute=("9.0",), smi_gpus=1)


def decide(facts: HostGpuFacts = HOST, request: StackRequest = REQUEST) -> StackPlan:
    return plan("n1", facts, request, KNOWN, DAY)


def outcome(made: StackPlan) -> tuple[str | None, bool | None, list[tuple[Verdict, str]]]:
    part = next(part for part in made.components if part.name == NAME)
    return part.installed, part.changes, [(row.verdict, row.message) for row in made.findings if row.check == NAME]


def value(made: StackPlan, facts: HostGpuFacts = HOST) -> dict[str, Any]:
    knobs = desired.knobs(made, facts, KNOWN, ("nccl_tests",))
    return dict(next(knob["value"] for knob in knobs if knob["name"] == "gpu_stack.nccl_tests"))


def test_a_version_is_built_from_its_pinned_archive() -> None:
    made = decide()
    assert outcome(made) == ("", True, [])
    row = value(made)["nccl_tests"]
    assert row["uri"] == "https://github.com/NVIDIA/nccl-tests/archive/v2.17.6.tar.gz"
    assert row["sha256"] == next(one.sha256 for one in KNOWN.nccl_tests if one.version == VERSION)


def test_a_mirror_keeps_the_pinned_digest_and_a_site_may_pin_another_version() -> None:
    mirror = decide(request=replace(REQUEST, nccl_tests_source="http://mirror/n"))
    assert value(mirror)["nccl_tests"]["uri"] == "http://mirror/n/v2.17.6.tar.gz"
    assert value(mirror)["nccl_tests"]["sha256"].startswith("38974e70")
    other = StackRequest(None, nccl_tests="2.18.3")
    assert "the SHA-256 of 2.18.3 is not known" in outcome(decide(request=other))[2][0][1]
    pinned = decide(request=replace(other, nccl_tests_sha256="a" * 64))
    assert value(pinned)["nccl_tests"]["sha256"] == "a" * 64


@pytest.mark.parametrize(
    ("installed", "compute", "changes"),
    [
        (f"2.17.6 sm_90 {PIN}", ("9.0",), False),
        ("2.17.6 sm_90 aaaaaaaaaaaa", ("9.0",), True),
        (f"2.16.3 sm_90 {PIN}", ("9.0",), True),
        (f"2.17.6 sm_80 {PIN}", ("9.0",), True),
        (f"2.17.6 sm_80,sm_90 {PIN}", ("8.0", "9.0"), False),
        (f"2.17.6 sm_90 {PIN}, damaged", ("9.0",), True),
    ],
)
def test_a_build_counts_by_version_and_gpus(installed: str, compute: tuple[str, ...], changes: bool) -> None:
    facts = replace(HOST, nccl_tests=installed, compute=compute)
    made = decide(facts)
    assert outcome(made)[:2] == (installed, changes)
    verdicts = [row.verdict for row in verify.judge(made, facts, {}) if row.check == NAME]
    assert verdicts == [Verdict.FAIL if changes else Verdict.OK]


def test_what_is_missing_refuses_the_tests_and_no_other_part() -> None:
    facts = replace(HOST, nccl_tests_lacks=("nvcc is missing: x", "nccl.h is missing: y"))
    made = decide(facts, replace(REQUEST, driver=driver_version("580.178.04")))
    verdict, message = outcome(made)[2][0]
    assert verdict is Verdict.WARN
    assert "nvcc is missing: x; nccl.h is missing: y (or set nccl_tests: none)" in message
    assert not any(row.check == NAME and row.verdict is Verdict.FAIL for row in made.findings)
    assert "set nccl_tests: none" in value(decide(facts))["refused"]
    assert [row.verdict for row in verify.judge(made, facts, {}) if row.check == NAME] == [Verdict.FAIL]


def test_none_is_as_unset() -> None:
    assert read_variables({"gpu_stack": {"driver": "none", "nccl_tests": "none"}}, "h100").nccl_tests is None


def test_the_role_by_itself_waits_for_the_driver_of_the_site() -> None:
    bare = replace(HOST, compute=None, running_module="", running_open=None, smi_gpus=None, unread={"compute": "x"})
    stack = {"driver": "580.178.04", "nccl_tests": VERSION}
    made = decide(bare, gpu_node_role.task("n1", stack, ["nccl_tests"], DAY).request)
    assert outcome(made)[2] == [(Verdict.WARN, "it waits for the driver, which is not loaded yet")]
    assert value(made, bare) == {}


def test_the_folder_of_the_site_waits_for_what_its_test_links() -> None:
    folder = StackRequest(None, nccl_tests="/srv/nccl")
    lacks = ("/srv/nccl/all_reduce_perf does not run: libmpi.so.40: cannot open shared object file",)
    efa = replace(HOST, efa_devices=("0000:30:00.0",), nccl_tests_lacks=lacks)
    made = decide(efa, replace(folder, efa="1.48.0"))
    assert dict(made.waits)[NAME] == "EFA's installer, which brings Open MPI"
    assert value(made, efa) == {}
    bare = replace(HOST, compute=(), running_module="", running_open=None, smi_gpus=None, nccl_tests_lacks=lacks)
    made = decide(bare, replace(folder, driver=driver_version("580.178.04")))
    assert dict(made.waits)[NAME] == "the driver, which is not loaded yet"


def test_it_waits_for_the_driver_and_for_efa() -> None:
    bare = replace(HOST, compute=None, running_module="", running_open=None, smi_gpus=None)
    with_driver = decide(bare, replace(REQUEST, driver=driver_version("580.178.04")))
    assert outcome(with_driver)[2] == [(Verdict.WARN, "it waits for the driver, which is not loaded yet")]
    assert NAME in dict(with_driver.waits)
    efa = replace(HOST, efa_devices=("0000:30:00.0",), nccl_tests_lacks=("mpi.h is missing: install it",))
    later = decide(efa, replace(REQUEST, efa="1.48.0"))
    assert outcome(later)[2] == [(Verdict.WARN, "it waits for EFA's installer, which brings Open MPI")]
    assert value(later, efa) == {}
    assert "mpi.h is missing" in value(decide(efa))["refused"]


def test_what_could_not_be_read_is_unknown() -> None:
    for facts in (replace(HOST, compute=None, unread={"compute": "broken"}), replace(HOST, nccl_tests=None)):
        assert [row[0] for row in outcome(decide(facts))[2]] == [Verdict.UNKNOWN]


def test_the_folder_of_the_site_is_only_checked() -> None:
    request = StackRequest(None, nccl_tests="/srv/nccl/build")
    assert question(request) == {"folder": "/srv/nccl/build"}
    made = decide(replace(HOST, nccl_tests="2.18.1", compute=()), request)
    assert outcome(made) == ("2.18.1", False, [])
    assert value(made)["nccl_tests"] == {"folder": "/srv/nccl/build"}
    wrong = decide(replace(HOST, nccl_tests_lacks=("it does not run",)), request)
    assert outcome(wrong)[1] is None
    assert "it does not run" in value(wrong)["refused"]


@pytest.mark.parametrize(
    ("fields", "wrong"),
    [
        ({"nccl_tests": "latest"}, "a version such as 2.17.6"),
        ({"nccl_tests": "../x"}, "a version such as 2.17.6"),
        ({"nccl_tests": "/srv/x", "nccl_tests_sha256": "a" * 64}, "no version to build"),
        ({"nccl_tests_source": "https://mirror"}, "no version to build"),
        ({"nccl_tests": VERSION, "nccl_tests_sha256": "abc"}, "64 lower-case"),
        ({"nccl_tests": VERSION, "nccl_tests_source": "mirror"}, "the address of a mirror"),
        ({"nccl_tests": VERSION, "nccl_tests_source": "https://user:secret@mirror/x"}, "the address of a mirror"),
        ({"nccl_tests": "none", "nccl_tests_source": "https://mirror"}, "no version to build"),
    ],
)
def test_wrong_fields_are_refused(fields: dict[str, str], wrong: str) -> None:
    with pytest.raises(InvalidInput) as refusal:
        read_variables({"gpu_stack": {"driver": "none", **fields}}, "h100")
    assert wrong in refusal.value.wrong
