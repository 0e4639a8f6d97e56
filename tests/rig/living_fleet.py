"""A fleet of T4 hosts as values, for roll-outs: it answers the engine's requests as hosts do, and records them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol, cast

import pytest
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.acts import slurm_node
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.host import Host, Result

from gpuctl.gpu_node import site
from gpuctl.gpu_node.knowledge import knowledge
from gpuctl.gpu_node.model import HostGpuFacts, StackRequest
from gpuctl.gpu_node.version import driver_version
from gpuctl.hosts import flow
from gpuctl.hosts.model import HostResult, Target
from gpuctl.workflows import (
    gpu_node_apply,
    gpu_node_plan,
    gpu_node_rollout,
    gpu_node_verify,
    host_reboot,
    nodes_drain,
    nodes_empty,
)
from tests.rig.gpu_stack_machines import MACHINES, offered

MISMATCH = "Failed to initialize NVML: Driver/library version mismatch"
OLD, NEW = "580.105.08", "580.178.04"
REQUEST = StackRequest(driver_version(NEW))
NAMES = ("libnvidia-compute-580", "nvidia-dkms-580-open", "nvidia-modprobe")
RESOLVED = "".join(f"Inst {name} [{OLD}-1] ({NEW}-1 NVIDIA:cuda [amd64])\n" for name in NAMES)
RESOLVED += "3 upgraded, 0 newly installed, 0 to remove and 0 not upgraded.\n"
IDLE_GPU: dict[str, Any] = {
    "index": 0,
    "mig": None,
    "processes": [],
    "used_mib": 0,
    "busy_percent": 0,
    "unread": {},
    "errors": {},
}


class SlurmNode(Protocol):
    """A host with scontrol. `updates`: of its node. The others are what a stand-in shows; a real Slurm has its own."""

    state: str
    reason: str
    jobs: int
    updates: list[str]


class StandinSlurmNode(Host):
    """Stand-in for a host whose scontrol shows and changes one node; `reads`: of its jobs, one ends with each."""

    def __init__(self, state: str = "IDLE", reason: str = "", jobs: int = 0) -> None:
        super().__init__()
        self.state, self.reason, self.jobs = state, reason, jobs
        self.updates: list[str] = []

    def run(self, *argv: str, **more: Any) -> Result:
        """See Host."""
        if "update" in argv:
            self.updates.append(" ".join(argv[3:]))
            self.state = "IDLE" if "State=RESUME" in argv else "IDLE+DRAIN"
            self.reason = next((word.partition("=")[2] for word in argv if word.startswith("Reason=")), "")
            return Result(0, "", "")
        state = self.state
        if self.jobs:
            self.jobs, state = self.jobs - 1, state.replace("IDLE", "MIXED")
        reason = f"Reason={self.reason} [root@2026-11-27T10:00:00]" if self.reason else ""
        return Result(
            0, f"NodeName={argv[-1]} Arch=x86_64 State={state} ThreadsPerCore=1 Partitions=main {reason}\n", ""
        )


@dataclass
class FleetHost:
    """One host. `packages`, `running`: driver versions. `misses`: GPUs that nvidia-smi lacks after a change.

    `loads`: an install loads the new module at once, as on a host whose module nobody had loaded. `unheld`: its
    packages are not held, as after an install that ended too early. `unbuilt`: its packages have no
    module for the running kernel. `ill`: DCGM's diagnosis fails. `tests`: nccl-tests of the host, as its fact.
    """

    packages: str = OLD
    running: str = OLD
    busy: tuple[str, ...] = ()
    interrupted: tuple[str, ...] = ()
    reached: bool = True
    misses: bool = False
    fails: str = ""
    loads: bool = False
    unheld: bool = False
    unbuilt: bool = False
    ill: bool = False
    tests: str = ""
    boots: int = 1
    returns: bool = True
    slurm: SlurmNode = field(default_factory=StandinSlurmNode)
    acts: list[str] = field(default_factory=list)

    def facts(self) -> HostGpuFacts:
        return replace(
            MACHINES["T4"],
            offers=offered(REQUEST, knowledge()),
            packages=dict.fromkeys(NAMES, f"{self.packages}-1"),
            running_module=self.running,
            running_open=True,
            installed_module=OLD if self.unbuilt else self.packages,
            installed_open=True,
            smi_gpus=None if self.mismatch else 1,
            unread={"smi_gpus": MISMATCH} if self.mismatch else {},
            busy=(*self.busy, *(["Slurm runs 1 job steps here"] if self.slurm.jobs else [])),
            interrupted=self.interrupted,
            nccl_tests=self.tests,
            compute=() if self.mismatch else ("7.5",),
        )

    @property
    def mismatch(self) -> bool:
        return self.packages != self.running

    def tools(self) -> dict[str, Any]:
        gpus = [] if self.misses and self.running == NEW else self.facts().gpus or ()
        rows = [{"address": gpu.address, "ecc": None, "ecc_pending": None} for gpu in gpus]
        return {"gpu": {"driver": self.running, "gpus": rows, "unread": {}}, "rdma": {"efa": None, "unread": {}}}

    def answer(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """The answer to a request of the engine."""
        if request["action"] == "repair":
            self.acts.append("repair")
            packages, self.interrupted = list(self.interrupted), ()
            return {"repaired": packages}
        if request["action"] == "act":
            return {"act": self._act(request)}
        if request["action"] == "diagnose":
            return {"diagnosis": self._diagnosis(request)}
        subjects = request["subjects"]
        if request.get("only") == ["gpu", "jobs"]:
            return {"facts": self._use()}
        if subjects == "transaction":
            return {"facts": {"transaction": {"manager": "apt", "output": RESOLVED, "unread": {}}}}
        return {
            "facts": {"stack": json.loads(json.dumps(asdict(self.facts())))} if subjects == "stack" else self.tools()
        }

    def _use(self) -> dict[str, Any]:
        state = self.slurm.state.lower().replace("idle+drain", "drained")
        jobs = {"slurm_steps": 0, "kubernetes_pods": 0, "nccl_tests": 0, "slurm_state": state, "unread": {}}
        return {"gpu": {"gpus": [IDLE_GPU], "unread": {}}, "jobs": jobs}

    def _diagnosis(self, request: Mapping[str, Any]) -> dict[str, Any]:
        if request["start"]:
            self.acts.append(f"diagnose {request['level']}")
            assert request["new"]
        if f"diagnose {request['level']}" not in self.acts:
            return {"state": "none", "now": 2, "level": None, "began": None, "users": [], "error": None}
        rows: list[dict[str, Any]] = [{"entity_id": 0, "status": "Pass" if not self.ill else "Fail", "warnings": []}]
        test = {"name": "software", "results": rows, "test_summary": {"status": rows[0]["status"]}}
        output: dict[str, Any] = {"DCGM Diagnostic": {"test_categories": [{"category": "Deployment", "tests": [test]}]}}
        output["metadata"] = {"version": "4.6.0", "Driver Version Detected": self.running}
        began = {"level": request["level"], "began": 1, "now": 2, "by": "root", "users": [], "error": ""}
        return {"state": "done", "code": 226 if self.ill else 0, "output": json.dumps(output), **began}

    def _act(self, request: Mapping[str, Any]) -> dict[str, Any]:
        if request["act"] == "slurm drain":
            before = len(self.slurm.updates)
            answer = slurm_node.run(cast(Host, self.slurm), request)
            self.acts += ["undrain" if request["undo"] else "drain"] * (len(self.slurm.updates) - before)
            return answer
        assert request["act"] == "reboot"
        if request["check"]:
            return {"state": "due", "boot_id": f"boot-{self.boots}", "up": True, "reason": ""}
        if self.busy:
            return {"state": "busy", "boot_id": f"boot-{self.boots}", "up": True, "reason": self.busy[0]}
        assert request["boot_id"] == f"boot-{self.boots}"
        self.acts.append("reboot")
        if self.returns:
            self.boots, self.running = self.boots + 1, self.packages
        else:
            self.reached = False
        return {"state": "done", "boot_id": "", "up": True, "reason": ""}

    def install(self) -> HostResult:
        self.acts.append("install")
        state = "failed" if self.fails else "ok"
        if not self.fails:
            self.packages, self.unheld = NEW, False
            self.running = NEW if self.loads else self.running
        return self._result(state, changed=not self.fails)

    def compare(self) -> HostResult:
        """The answer of the engine in check mode."""
        return self._result("differs" if self.differs else "ok")

    @property
    def differs(self) -> bool:
        return self.packages != NEW or self.unheld

    def _result(self, state: str, *, changed: bool = False) -> HostResult:
        row = {"now": OLD, "boot": OLD, "desired": NEW, "reason": self.fails, "conflicts": [], "reboot": False}
        return HostResult("", {"knobs": [{"knob": "gpu_stack.driver", "state": state, "changed": changed, **row}]})


class LivingFleet:
    """The hosts of an inventory; `log`: what was done to which of them, in order."""

    def __init__(self, **hosts: FleetHost) -> None:
        self.hosts = hosts
        self.local = False  # gpuctl runs on them
        self.request = REQUEST

    def visit(self, targets: Sequence[Target], request_of: Any, **_: Any) -> list[HostResult]:
        """Stand-in of `run_on_all`."""
        return [self._result(target.name, request_of(target)) for target in targets]

    def _result(self, name: str, request: Mapping[str, Any]) -> HostResult:
        host = self.hosts[name]
        if not host.reached:
            return HostResult(name, wrong="no route to host", unreachable=True)
        return HostResult(name, json.loads(json.dumps(host.answer(request))))

    def change(self, _source: Path, hosts: Sequence[Target], job: flow.Job, *_: Any) -> list[HostResult]:
        """Stand-in of `flow.run`."""
        for host in hosts if not job.check else ():
            self._build(self.hosts[host.name], job.profiles[host.name]["knobs"])
        return [replace(self._changed(self.hosts[host.name], job), host=host.name) for host in hosts]

    def _build(self, host: FleetHost, knobs: Sequence[Mapping[str, Any]]) -> None:
        """Build nccl-tests if the host's profile has them."""
        for knob in knobs:
            asked = knob["value"].get("nccl_tests")
            if asked is not None and not host.tests:
                host.tests = f"{asked['version']} sm_75 {asked['sha256'][:12]}"
                host.acts.append("build")

    def _changed(self, host: FleetHost, job: flow.Job) -> HostResult:
        if not host.reached:
            return HostResult("", wrong="no route to host", unreachable=True)
        return host.compare() if job.check or not host.differs else host.install()

    def connect(self, patch: pytest.MonkeyPatch) -> None:
        """Let the workflows reach this fleet, without an inventory and without waiting."""
        stack = gpu_node_plan.SiteStack(self.request, site.plain(self.request))
        targets = [Target(name, local=self.local) for name in self.hosts]
        listed: Any = (Path("prod"), targets, dict.fromkeys(self.hosts, stack), [])
        patch.setattr(gpu_node_plan, "_hosts", lambda *_: listed)
        for module in (gpu_node_plan, gpu_node_apply, gpu_node_verify, host_reboot, nodes_drain):
            patch.setattr(module, "run_on_all", self.visit)
        patch.setattr(flow, "run", self.change)
        for module in (gpu_node_rollout, host_reboot, nodes_empty):
            patch.setattr(module, "POLL_S", 0)
        patch.setattr(gpu_node_rollout, "SETTLE_S", 0)

    @property
    def acts(self) -> dict[str, list[str]]:
        return {name: host.acts for name, host in self.hosts.items()}
