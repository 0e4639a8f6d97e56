"""The resolved transaction in the plan, facts from hosts that are not trusted, and the file of facts."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from gpuctl.core.errors import InvalidInput
from gpuctl.domain.findings import Verdict
from gpuctl.engine import typed_json
from gpuctl.gpu_node import facts_file, resolution, site
from gpuctl.gpu_node.facts import host_gpu_facts
from gpuctl.gpu_node.facts_file import Fleet, HostRecord
from gpuctl.gpu_node.knowledge import knowledge
from gpuctl.gpu_node.model import StackPlan, StackRequest
from gpuctl.gpu_node.plan import plan
from gpuctl.gpu_node.version import driver_version
from tests.rig.gpu_stack_machines import MACHINES, offered

KNOWN = knowledge()
REQUEST = StackRequest(driver_version("580.178.04"))
FACTS = replace(MACHINES["T4"], offers=offered(REQUEST, KNOWN))
END = "0 upgraded, 3 newly installed, 0 to remove and 0 not upgraded.\n"
WHOLE = "".join(
    f"Inst {name} (580.178.04-1 NVIDIA:cuda [amd64])\n"
    for name in ("libnvidia-compute-580", "nvidia-dkms-580-open", "nvidia-modprobe")
)


def decided(**facts: Any) -> StackPlan:
    return plan("node-1", replace(FACTS, **facts), REQUEST, KNOWN, date(2026, 11, 27))


def judged(output: str | None, manager: str | None = "apt", reason: str = "") -> list[tuple[str, Verdict]]:
    unread = {"output": reason} if reason else {}
    made = resolution.resolved(decided(), {"manager": manager, "output": output, "unread": unread}, FACTS, KNOWN)
    return [(finding.check, finding.verdict) for finding in made.findings[len(decided().findings) :]]


def test_the_question_has_exact_versions_and_pins_for_what_they_depend_on() -> None:
    question = resolution.question(decided())
    assert question is not None
    assert question["packages"][0] == "libnvidia-compute-580=580.178.04-1"
    assert "Pin: version 580.178.04*\nPin-Priority: 1000" in question["pins"]


def test_packages_of_another_flavour_or_branch_are_removed_by_name() -> None:
    """Debian's two modules do not conflict: the other one stays, and breaks by its dependencies."""
    other = {"nvidia-dkms-580": "580.178.04-1", "libnvidia-compute-570": "570.1-1", "nvidia-persistenced": "570.1-1"}
    question = resolution.question(decided(packages=other))
    assert question is not None
    assert question["packages"][-2:] == ["nvidia-dkms-580-", "libnvidia-compute-570-"]
    held = replace(REQUEST, without=("libnvidia-compute-570",))
    made = plan("node-1", replace(FACTS, packages=other), held, KNOWN, date(2026, 11, 27))
    assert made.components[0].removes == ("nvidia-dkms-580",)


@pytest.mark.parametrize(
    ("name", "version"),
    [
        ("cuda-drivers", "580.178.04-1"),
        ("cuda-drivers", "580.95.05-1"),
        ("nvidia-fabricmanager-580", "580.178.04-1"),
        ("libnvidia-nscq-580", "580.178.04-1"),
        ("nvidia-imex-580", "580.178.04-1"),
        ("cuda-12-9", "12.9.1-1"),
    ],
)
def test_metapackages_and_services_of_the_desired_branch_stay(name: str, version: str) -> None:
    assert decided(packages={name: version, "nvidia-dkms-580": "580.178.04-1"}).components[0].removes == (
        "nvidia-dkms-580",
    )


@pytest.mark.parametrize(
    ("name", "version"),
    [
        ("cuda-drivers", "570.133.20-1"),
        ("nvidia-fabricmanager-570", "570.133.20-1"),
        ("nvidia-imex-570", "570.133.20-1"),
        ("libnvidia-compute", "590.44.01-1"),
        ("nvidia-dkms-570-server-open", "570.133.20-0ubuntu1"),
        ("libnvidia-compute-570-server", "570.133.20-0ubuntu1"),
        ("nvidia-dkms-580-server", "580.178.04-0ubuntu1"),
    ],
)
def test_drivers_and_services_of_another_branch_or_line_go(name: str, version: str) -> None:
    assert decided(packages={name: version}).components[0].removes == (name,)


BOTH = dict.fromkeys(
    ("libnvidia-compute-580", "nvidia-dkms-580-open", "nvidia-modprobe", "nvidia-dkms-580"), "580.178.04-1"
)


@pytest.mark.parametrize("driver", [driver_version("580.178.04"), 580])
def test_two_flavours_at_once_are_a_change_that_only_removes(driver: Any) -> None:
    made = plan("node-1", replace(FACTS, packages=BOTH), StackRequest(driver), KNOWN, date(2026, 11, 27))
    assert (made.changes, made.packages, made.components[0].removes) == (True, (), ("nvidia-dkms-580",))
    question = resolution.question(made)
    assert question is not None
    assert question["packages"] == ["nvidia-dkms-580-"]
    output = "Remv nvidia-dkms-580 [580.178.04-1]\n0 upgraded, 0 newly installed, 1 to remove and 0 not upgraded.\n"
    answer = {"manager": "apt", "output": output, "unread": {}}
    made = resolution.resolved(made, answer, replace(FACTS, packages=BOTH), KNOWN)
    assert (made.refused, made.removes) == (False, {"nvidia-dkms-580": "580.178.04-1"})
    packages = {name: version for name, version in BOTH.items() if name != "nvidia-dkms-580"}
    assert plan("node-1", replace(FACTS, packages=packages), REQUEST, KNOWN, date(2026, 11, 27)).changes is False


@pytest.mark.parametrize(
    ("removed", "removable", "verdict"),
    [
        ("cuda-12-9 [12.9.1-1]", (), Verdict.FAIL),
        ("cuda-12-9 [12.9.1-1]", ("cuda-12-9",), Verdict.OK),
        ("libnvidia-gl-570 [570.133.20-0ubuntu1]", (), Verdict.OK),  # as the driver that goes
        ("libnvidia-gl-565 [565.57.01-0ubuntu1]", (), Verdict.FAIL),
        ("nvidia-docker2 [2.13.0-1]", (), Verdict.FAIL),
    ],
)
def test_what_is_no_part_of_the_driver_goes_only_if_the_site_lists_it(
    removed: str, removable: tuple[str, ...], verdict: Verdict
) -> None:
    name, _, version = removed.partition(" ")
    packages = {name: version.strip("[]"), "nvidia-utils-570": "570.133.20-0ubuntu1"}
    facts = replace(FACTS, packages=packages)
    request = replace(REQUEST, removable=removable)
    made = plan("node-1", facts, request, KNOWN, date(2026, 11, 27))
    output = f"Remv {removed}\nRemv nvidia-utils-570 [570.133.20-0ubuntu1]\n{WHOLE}{END}"
    made = resolution.resolved(made, {"manager": "apt", "output": output, "unread": {}}, facts, KNOWN)
    rows = {row.check: row for row in made.findings}
    assert rows.get("transaction", rows["one version"]).verdict is verdict


def test_a_busy_host_is_asked_and_one_without_versions_is_not() -> None:
    assert resolution.question(decided(busy=("2 processes on GPUs",)))
    assert resolution.question(decided(offers=None)) is None


@pytest.mark.parametrize(
    ("output", "manager", "findings"),
    [
        (WHOLE + END, "apt", [("one version", Verdict.OK)]),
        (
            f"Remv bash [5.2]\n{WHOLE}{END}",
            "apt",
            [("transaction", Verdict.FAIL), ("one version", Verdict.OK)],
        ),
        (f"Remv cuda-drivers-570 [570.1.1-1]\n{WHOLE}{END}", "apt", [("one version", Verdict.OK)]),
        (WHOLE, "apt", [("transaction", Verdict.UNKNOWN)]),
        ("E: Unmet dependencies.\n", "apt", [("transaction", Verdict.FAIL)]),
        (None, "apt", [("transaction", Verdict.UNKNOWN)]),
        (WHOLE + END, "zypper", [("transaction", Verdict.UNKNOWN)]),
    ],
)
def test_an_answer_is_judged(output: str | None, manager: str, findings: list[tuple[str, Verdict]]) -> None:
    assert judged(output, manager) == findings


def test_a_host_that_could_not_resolve_has_its_reason() -> None:
    answer = {"manager": None, "output": None, "unread": {"output": "apt-get gave no answer within 90 s"}}
    made = resolution.resolved(decided(), answer, FACTS, KNOWN)
    assert "apt-get gave no answer within 90 s" in made.findings[-1].message
    assert made.state == "unknown"


def plain() -> dict[str, Any]:
    facts: dict[str, Any] = json.loads(json.dumps(asdict(FACTS)))
    return facts


def test_facts_survive_json() -> None:
    assert asdict(host_gpu_facts(plain())) == asdict(FACTS)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("gpus", "8"),
        ("gpus", [{"address": 1, "device": "1eb8", "subvendor": None, "subdevice": None}]),
        ("headers", "yes"),
        ("lists_age_days", -1),
        ("smi_gpus", True),
        ("packages", ["bash"]),
        ("offers", {"nvlsm": "1.0"}),
        ("kernel", 6),
        ("unread", None),
        ("keys", [{"name": "a", "fingerprint": 1, "unusable": ""}]),
    ],
)
def test_facts_of_another_shape_are_refused(name: str, value: object) -> None:
    with pytest.raises(typed_json.Misfit, match=name):
        host_gpu_facts({**plain(), name: value})


def test_a_file_of_facts_is_read_as_it_was_saved(tmp_path: Path) -> None:
    path = tmp_path / "facts.json"
    fleet = Fleet({"a": HostRecord(plain(), site.plain(REQUEST), {"packages": []}, None)}, {"b": "no route"})
    facts_file.save(path, fleet)
    assert facts_file.read(path) == fleet


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        '{"gpu_hosts": {}, "form": 99, "unasked": {}}',
        '{"gpu_hosts": {}, "form": 1}',
        '{"gpu_hosts": {"a": {"stack": {}}}, "form": 1, "unasked": {}}',
        '{"gpu_hosts": {"a": {"stack": [], "gpu_stack": {}, "question": null, "answer": null}}, "form": 1, "unasked": {}}',  # noqa: E501
        '{"gpu_hosts": {"a": {"stack": {}, "gpu_stack": {}, "question": 1, "answer": null}}, "form": 1, "unasked": {}}',
    ],
)
def test_another_file_is_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "facts.json"
    path.write_text(text)
    with pytest.raises(InvalidInput, match="read the facts in"):
        facts_file.read(path)


def test_a_request_is_written_as_it_is_read() -> None:
    for request in (
        REQUEST,
        StackRequest(None),
        StackRequest(580, "open", "13.0", "1.20.0", "4.6.0-1", "1.48.0", "nvidia"),
    ):
        assert site.read_variables({"gpu_stack": site.plain(request)}, "a") == request


def test_dnf_is_not_asked_to_remove_as_its_install_cannot() -> None:
    for distribution, removes in (("ubuntu24.04", True), ("rhel10", False)):
        request = StackRequest(driver_version("580.178.04"), dcgm="4.6.0-1")
        packages = {"datacenter-gpu-manager": "1:3.3.9"}
        facts = replace(MACHINES["T4"], distribution=distribution, packages=packages, offers=offered(request, KNOWN))
        question = resolution.question(plan("n1", facts, request, KNOWN, date(2026, 11, 27)))
        assert question
        assert ("datacenter-gpu-manager-" in question["packages"]) is removes
