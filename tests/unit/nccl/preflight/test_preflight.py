"""The preflight's rules, each on a fleet where one node is not as the others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from gpuctl.domain.findings import Verdict
from gpuctl.nccl import preflight
from gpuctl.nccl.preflight import gpus
from tests.rig.nccl.fleets import Facts, efa, fleet, node, problems, said

FAIL, WARN, UNKNOWN = Verdict.FAIL, Verdict.WARN, Verdict.UNKNOWN


def put(subject: str, name: str, value: Any) -> Callable[[Facts], None]:
    """A change to one node's facts."""
    return lambda facts: facts[subject].__setitem__(name, value)


def gpu(name: str, value: Any) -> Callable[[Facts], None]:
    """A change to a node's third GPU."""
    return lambda facts: facts["gpu"]["gpus"][2].__setitem__(name, value)


def capped(**values: Any) -> Callable[[Facts], None]:
    """The third GPU is at its power limit; like an H200 at full load, except for these values."""
    at_work = {"slowed_by": ["sw_power_cap"], "busy_percent": 98, "power_limit_w": 700, "default_power_limit_w": 700}
    return lambda facts: facts["gpu"]["gpus"][2].update(at_work, **values)


def not_active(facts: Facts) -> None:
    facts["rdma"]["ports"][0].update(state="DOWN", physical="Polling")


def without(program: str) -> Callable[[Facts], None]:
    """A node that lacks a program, as its facts tell it."""

    def lose(facts: Facts) -> None:
        facts["programs"][program] = None
        facts["programs"]["unread"][program] = f"{program}: not found on the PATH nor in the usual folders"

    return lose


def port_lacks(name: str) -> Callable[[Facts], None]:
    """A change to a node's first port."""
    return lambda facts: facts["rdma"]["ports"][0].__setitem__(name, None)


def without_efa_device(facts: Facts) -> None:
    del facts["rdma"]["ports"][-1]
    facts["rdma"]["efa"]["domains"] -= 1


def test_a_healthy_fleet_is_all_ok() -> None:
    found = preflight.judge(fleet(4))
    assert {f.verdict for f in found} <= {Verdict.OK}, [f for f in found if f.verdict is not Verdict.OK]
    assert {f.check for f in found} >= {
        "gpu-count",
        "driver",
        "adapters",
        "gdr",
        "memlock",
        "nccl-tests",
        "ssh",
        "idle",
    }


def test_a_gpu_at_work_at_its_default_power_limit_is_healthy() -> None:
    node = fleet(2, node_2=capped())
    assert {f.verdict for f in preflight.judge(node) if f.check == "clocks"} == {Verdict.OK}


def test_a_healthy_efa_fleet_is_all_ok() -> None:
    found = preflight.judge({name: efa(facts) for name, facts in fleet(3).items()})
    assert {f.verdict for f in found} == {Verdict.OK}, [f for f in found if f.verdict is not Verdict.OK]


CASES = {
    "a GPU fell off the bus": ("gpu-count", FAIL, lambda f: f["gpu"]["gpus"].pop(), "7 GPUs answer, the node has 8"),
    "another model": ("gpu-model", FAIL, lambda f: [g.update(model="NVIDIA H200") for g in f["gpu"]["gpus"]], "H200"),
    "another driver": ("driver", FAIL, lambda f: f["gpu"].update(driver="560.35.03", module="560.35.03"), "560.35.03"),
    "driver not reloaded": ("driver", FAIL, put("gpu", "module", "560.35.03"), "loaded kernel module is 560.35.03"),
    "fabric manager of another version": ("fabric-manager", FAIL, put("gpu", "fabric_manager", "570.1"), "differ"),
    "fabric manager stopped": ("fabric-manager", FAIL, put("gpu", "fabric_manager_runs", False), "does not run"),
    "NVLink fabric not joined": ("fabric-manager", FAIL, gpu("fabric_state", "In Progress"), "In Progress"),
    "row remap pending": ("gpu-memory", FAIL, gpu("remap_pending", True), "GPU 2: a row remap is pending"),
    "row remap failed": ("gpu-memory", FAIL, gpu("remap_failure", True), "GPU 2"),
    "page retirement pending": ("gpu-memory", FAIL, gpu("retire_pending", True), "page retirement"),
    "ECC change pending": ("gpu-memory", FAIL, gpu("ecc_pending", "Disabled"), "Disabled after a reset"),
    "driver asks for a reset": ("gpu-memory", FAIL, gpu("recovery", "Reset"), "Reset"),
    "an error in place of a value": ("gpu-memory", FAIL, gpu("errors", {"temperature/gpu_temp": "ERR!"}), "ERR!"),
    "row remap failure not told": ("gpu-memory", UNKNOWN, gpu("remap_failure", None), "GPU 2: pending repairs"),
    "error counts not told": ("gpu-memory", UNKNOWN, gpu("uncorrectable", None), "GPU 2: its uncorrectable errors"),
    "uncorrectable errors": ("gpu-memory", FAIL, gpu("uncorrectable", 3), "3 uncorrectable"),
    "too hot": ("clocks", FAIL, gpu("slowed_by", ["hw_thermal_slowdown"]), "GPU 2 is slowed down"),
    "power limit while idle": ("clocks", WARN, capped(busy_percent=3), "though it is only 3 % busy"),
    "lowered power limit": ("clocks", WARN, capped(power_limit_w=500), "at its power limit, 500 W, by default 700 W"),
    "power limit not told": ("clocks", WARN, capped(default_power_limit_w=None), "unknown whether that was lowered"),
    "clocks not told": ("clocks", UNKNOWN, gpu("slowed_by", None), "does not report it"),
    "a port is down": ("adapters", FAIL, not_active, "mlx5_0:1 DOWN/Polling"),
    "no way to GPU memory": ("gdr", FAIL, put("gpu", "open_module", False), "neither DMA-BUF nor"),
    "small memlock": ("memlock", FAIL, put("limits", "memlock", 65536), "user hpc may lock 64 KiB"),
    "middling memlock": ("memlock", WARN, put("limits", "memlock", 2**30), "1 GiB"),
    "no nccl-tests": ("nccl-tests", FAIL, without("test"), "test: not found on the PATH"),
    "no MPI": ("mpi", FAIL, without("mpirun"), "mpirun: not found on the PATH"),
    "nccl-tests not told": ("nccl-tests", UNKNOWN, put("programs", "test", None), "no reason was given"),
    "fabric manager not seen": ("fabric-manager", UNKNOWN, put("gpu", "fabric_manager_runs", None), "runs is unknown"),
    "a model not told": ("gpu-model", UNKNOWN, gpu("model", None), "the model of GPU 2 is unknown"),
    "ECC not told": ("gpu-memory", UNKNOWN, gpu("ecc_pending", None), "GPU 2: ECC is unknown"),
    "a state of NVLink not told": ("fabric-manager", UNKNOWN, gpu("fabric_status", None), "whether GPU 2 joined"),
    "no state of NVLink told": (
        "fabric-manager",
        UNKNOWN,
        lambda f: [g.update(fabric_state=None, fabric_status=None) for g in f["gpu"]["gpus"]],
        "whether GPU 0, 1, 2, 3, 4, 5, 6, 7 joined the NVLink fabric is unknown",
    ),
    "a port's state not told": ("adapters", UNKNOWN, port_lacks("state"), "state of mlx5_0:1 is unknown"),
    "a port's rate not told": ("adapters", UNKNOWN, port_lacks("rate_gbps"), "rate of mlx5_0:1 is unknown"),
    "a port's link not told": ("adapters", UNKNOWN, port_lacks("link"), "link_layer of mlx5_0:1 is unknown"),
    "a name not told": ("names", UNKNOWN, put("names", "hostname", None), "its host name is unknown"),
    "nccl-tests without MPI": ("nccl-tests", FAIL, put("programs", "test_mpi", False), "without MPI"),
    "another build": ("nccl-tests", FAIL, put("programs", "test_sha256", "cd" * 32), "build cdcdcdcdcdcd"),
    "another MPI": ("mpi", FAIL, put("programs", "mpi", "Open MPI 5.0.3"), "Open MPI 5.0.3"),
    "another NCCL": ("nccl", FAIL, put("programs", "nccl", "2.21.5"), "NCCL 2.21.5"),
    "its own nccl.conf": ("settings", WARN, put("programs", "conf", {"NCCL_IB_HCA": "mlx5"}), "NCCL_IB_HCA=mlx5"),
    "a process": (
        "idle",
        FAIL,
        gpu("processes", [{"pid": 7, "name": "python", "used_mib": 900}]),
        "processes on its GPUs: python (7)",
    ),
    "memory nobody holds": ("idle", FAIL, gpu("used_mib", 40000), "GPU 2 40000 MiB"),
    "a test of somebody else": ("idle", FAIL, put("jobs", "nccl_tests", 8), "8 processes of nccl-tests"),
    "a Slurm step": ("idle", FAIL, put("jobs", "slurm_steps", 1), "Slurm runs 1 job steps"),
    "reserved in Slurm": ("idle", FAIL, put("jobs", "slurm_state", "reserved"), "its Slurm state is reserved"),
    "a pod": ("idle", FAIL, put("jobs", "kubernetes_pods", 2), "2 pods"),
    "pods not readable": ("idle", UNKNOWN, put("jobs", "kubernetes_pods", None), "kubernetes pods are unknown"),
}


@pytest.mark.parametrize("case", CASES)
def test_names_the_node_that_is_not_as_the_others(case: str) -> None:
    rule, verdict, change, words = CASES[case]
    found = preflight.judge(fleet(4, node_3=change))
    assert problems(found, rule) == [("node-3", verdict)]
    assert words in said(found, rule)


@pytest.mark.parametrize(
    ("state", "verdict", "words"),
    [
        *(
            (state, None, "")
            for state in ("", "idle", "down", "drained", "idle*", "idle~", "idle#", "drained*", "down~")
        ),
        ("allocated", FAIL, "a job has it"),
        ("allocated+", FAIL, "a job has it"),
        ("mixed", FAIL, "a part"),
        ("mixed-", FAIL, "a part"),
        ("completing*", FAIL, "ending"),
        ("draining@", FAIL, "still runs"),
        ("reserved", FAIL, "reservation"),
        ("maint", FAIL, "maintenance"),
        ("idle$", FAIL, "maintenance"),
        ("planned", FAIL, "planned"),
        ("idle-", FAIL, "planned"),
        ("idle@", WARN, "about to reboot it"),
        ("drained^", WARN, "rebooting it"),
        ("idle!", WARN, "about to power it down"),
        ("idle%", WARN, "powering it down"),
        *(
            (state, UNKNOWN, state)
            for state in ("unknown", "unknown*", "fail", "inval", "future", "drained+remove", "9?")
        ),
    ],
)
def test_only_a_state_of_slurms_that_is_known_to_be_free_is(state: str, verdict: Verdict | None, words: str) -> None:
    found = preflight.judge(fleet(3, node_2=put("jobs", "slurm_state", state)))
    assert problems(found, "idle") == ([("node-2", verdict)] if verdict else [])
    assert words in said(found, "idle")


def test_a_lost_efa_device_names_its_node() -> None:
    nodes = {name: efa(facts) for name, facts in fleet(4).items()}
    without_efa_device(nodes["node-2"])
    found = preflight.judge(nodes)
    assert {node_ for node_, _ in problems(found, "adapters")} == {"node-2"}
    assert "15 EFA ports of 200 Gb/s, 3 of 4 nodes have 16 EFA ports of 200 Gb/s" in said(found, "adapters")
    assert "the driver serves 15 EFA devices, the bus shows 16" in said(found, "adapters")


def test_an_efa_device_that_libfabric_does_not_offer_is_told() -> None:
    nodes = {name: efa(facts) for name, facts in fleet(3).items()}
    nodes["node-2"]["rdma"]["efa"]["domains"] = 15
    found = preflight.judge(nodes)
    assert problems(found, "adapters") == [("node-2", FAIL)]
    assert "libfabric offers 15 EFA devices, the driver serves 16" in said(found, "adapters")


def test_every_finding_but_ok_carries_advice_or_a_reason() -> None:
    for rule, _, change, _ in CASES.values():
        for found in preflight.judge(fleet(4, node_3=change)):
            assert found.verdict is Verdict.OK or found.hint or "unknown" in found.message, rule


def test_two_nodes_that_differ_are_both_named() -> None:
    found = preflight.judge(fleet(2, node_2=put("programs", "nccl", "2.21.5")))
    assert problems(found, "nccl") == [("node-1 and node-2", FAIL)]
    assert "NCCL 2.27.7 on node-1; NCCL 2.21.5 on node-2" in said(found, "nccl")


@pytest.mark.parametrize("subject", ["gpu", "rdma", "peer_memory", "limits", "programs", "names", "jobs", "reach"])
def test_a_subject_that_was_not_read_is_never_ok(subject: str) -> None:
    def lose(facts: Facts) -> None:
        facts[subject] = {"unread": {"*": "Permission denied"}}

    found = preflight.judge(fleet(4, node_3=lose))
    verdicts = [f for f in found if f.subject == "node-3"]
    assert verdicts
    assert all(f.verdict is not Verdict.OK for f in verdicts)
    assert any("Permission denied" in f.message for f in verdicts)
    assert not [f for f in verdicts if f.verdict is FAIL]


def test_a_node_that_gave_no_answer_is_unknown() -> None:
    found = preflight.judge(fleet(2), {"node-9": "it cannot be reached"})
    assert problems(found, "reachable") == [("node-9", UNKNOWN)]


def test_no_node_at_all_is_no_ok() -> None:
    assert preflight.judge({}, {"node-1": "it cannot be reached"})[0].verdict is UNKNOWN
    assert preflight.judge({}) == []


def test_a_single_node_needs_no_mpi() -> None:
    found = preflight.judge(
        {"node-1": {**node(), "programs": {**node()["programs"], "mpirun": None, "test_mpi": False}}}
    )
    assert {f.verdict for f in found} == {Verdict.OK}


def test_a_fleet_without_rdma_is_warned_of_tcp() -> None:
    nodes = fleet(3)
    for facts in nodes.values():
        facts["rdma"]["ports"] = []
    assert problems(preflight.judge(nodes), "adapters") == [("", WARN)]


def looked(forward: list[str] | None, reverse: list[str] | None, back: list[str] | None = None) -> dict[str, Any]:
    return {"node-2": {"forward": forward, "reverse": reverse, "back": back, "error": None}}


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        (looked(["10.0.0.2"], ["node-2.cluster"]), []),
        (looked([], []), [("node-1", FAIL)]),
        (looked([], ["node-2"], []), [("node-1", FAIL)]),
        (looked([], ["node-2"]), [("node-1", UNKNOWN)]),
        (looked([], ["node-2.cluster"], ["10.0.0.2"]), []),
        (looked([], ["node-2.cluster"], ["10.0.0.9"]), [("node-1", FAIL)]),
        (looked([], ["printer"], ["10.0.0.2"]), [("node-1", FAIL)]),
        (looked(None, ["node-2"]), [("node-1", UNKNOWN)]),
        (looked(["10.0.0.2"], None), [("node-1", UNKNOWN)]),
        (looked(["10.0.0.77"], ["node-2"]), [("node-1", FAIL)]),
        (looked(["10.0.0.2"], []), [("node-1", WARN)]),
        (looked(["10.0.0.2"], ["printer"]), [("node-1", WARN)]),
    ],
)
def test_names_are_held_against_the_node_itself(told: dict[str, Any], expected: list[Any]) -> None:
    found = preflight.judge(fleet(3, node_1=put("names", "peers", told)))
    assert problems(found, "names") == expected


def login(ok: bool, hostname: str | None, said_: str | None) -> Callable[[Facts], None]:
    return put("reach", "peers", {"node-2": {"ok": ok, "hostname": hostname, "error": said_, "seconds": 0.2}})


def test_a_node_that_cannot_log_in_to_another_is_named_with_what_to_do() -> None:
    found = preflight.judge(fleet(3, node_1=login(False, None, "Host key verification failed.")))
    assert problems(found, "ssh") == [("node-1", FAIL)]
    assert "user hpc cannot log in to node-2" in said(found, "ssh")
    assert "known_hosts" in next(f.hint for f in found if f.check == "ssh")


def test_what_one_node_lacks_for_many_others_is_said_once() -> None:
    told = {"ok": False, "hostname": None, "error": "Host key verification failed.", "seconds": 0.2}
    nodes = fleet(8)
    nodes["node-1"]["reach"]["peers"] = {f"node-{n}": told for n in range(2, 9)}
    nodes["node-1"]["names"]["peers"] = {f"node-{n}": looked([], [])["node-2"] for n in range(2, 9)}
    found = preflight.judge(nodes)
    assert problems(found, "ssh") == problems(found, "names") == [("node-1", FAIL)]
    assert "cannot log in to node-2, node-3, node-4, node-5 and 3 more: Host key" in said(found, "ssh")
    assert said(found, "names") == "cannot resolve the names node-2, node-3, node-4, node-5 and 3 more"


def test_a_node_that_answers_neither_us_nor_the_others_is_named_itself() -> None:
    told = {"node-4": {"ok": False, "hostname": None, "error": "Connection timed out", "seconds": 10.0}}
    nodes = fleet(3, node_1=put("reach", "peers", told), node_3=put("reach", "peers", told))
    found = preflight.judge(nodes, {"node-4": "it cannot be reached"})
    assert problems(found, "ssh") == [("node-4", FAIL)]
    assert said(found, "ssh") == "it does not answer, and node-1, node-3 cannot log in there: Connection timed out"


def test_a_login_that_ends_on_another_machine_fails() -> None:
    assert problems(preflight.judge(fleet(3, node_1=login(True, "node-7", None))), "ssh") == [("node-1", FAIL)]
    assert problems(preflight.judge(fleet(3, node_1=login(True, "node-2", None))), "ssh") == []


def test_nodes_with_one_hostname_are_named_with_what_to_do() -> None:
    def ubuntu(facts: Facts) -> None:
        facts["names"]["hostname"] = "ubuntu"

    found = [f for f in preflight.judge(fleet(4, node_1=ubuntu, node_3=ubuntu)) if f.check == "names"]
    assert [(f.subject, f.verdict, f.message) for f in found] == [
        ("node-1 and node-3", FAIL, "each has the host name ubuntu")
    ]
    assert "hostnamectl set-hostname" in found[0].hint
    cut = fleet(3, node_1=put("names", "hostname", "a.x"), node_2=put("names", "hostname", "A.y"))  # as NCCL cuts them
    assert problems(preflight.judge(cut), "names") == [("node-1 and node-2", FAIL)]
    assert problems(preflight.judge({"node-1": fleet(1)["node-1"]}), "names") == []


def test_many_nodes_with_one_hostname_are_one_finding() -> None:
    nodes = fleet(9)
    for facts in nodes.values():
        facts["names"]["hostname"] = "localhost"
    assert problems(preflight.judge(nodes), "names") == [("node-1, node-2, node-3, node-4 and 5 more", FAIL)]


def test_a_fabric_manager_of_gpus_that_have_no_fabric_state_is_ok_and_claims_no_more() -> None:
    def a100(facts: Facts) -> None:
        for one in facts["gpu"]["gpus"]:
            one.update(model="NVIDIA A100-SXM4-80GB", fabric_state=None, fabric_status=None)

    found = preflight.judge(fleet(2, node_1=a100, node_2=a100), rules=(gpus.fabric_manager,))
    assert [(f.verdict, f.message) for f in found] == [
        (Verdict.OK, "runs in the driver's version; these GPUs report no fabric state")
    ]
    found = preflight.judge(fleet(2, node_1=a100), rules=(gpus.fabric_manager,))
    assert found[0].message.endswith("all GPUs have joined; those of node-1 report no fabric state")
