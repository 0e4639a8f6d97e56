"""Each check of a pod that will not start, with what trips it and what passes it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpuctl.cluster.deploy import checks
from gpuctl.cluster.deploy.cluster_snapshot import Maybe
from gpuctl.cluster.doctor.diagnose import run_checks
from gpuctl.cluster.doctor.model import Facts, Log
from gpuctl.cluster.doctor.start import START
from gpuctl.domain.findings import Finding, Verdict
from tests.rig.cluster import snapshots as cluster
from tests.rig.cluster.environments import ROCE, check, event, facts, lines, owner, pending, pod

QUOTA = (
    'create Pod lab-1 in StatefulSet lab failed error: pods "lab-1" is forbidden: exceeded quota: few, '
    "requested: pods=1, used: pods=1, limited: pods=1"
)
SCC = (
    'create Pod lab-1 in StatefulSet lab failed error: pods "lab-1" is forbidden: unable to validate against any '
    'security context constraint: [capabilities.add: Invalid value: "IPC_LOCK": capability may not be added]'
)

NOTHING = Log()


def told(found: Facts, name: str) -> list[str]:
    return lines(check(START, name).run(found))


def waiting(reason: str, message: str = "back-off") -> dict[str, Any]:
    return {"state": {"waiting": {"reason": reason, "message": message}}}


def one(container: dict[str, Any], *events: Any, name: str = "lab-0", log: Log = NOTHING) -> dict[str, Any]:
    return {"pods": {name: pod(name, container, ready=False)}, "events": list(events), "logs": {name: log}}


@pytest.mark.parametrize("each", START.checks, ids=lambda each: each.name)
def test_no_check_finds_anything_in_an_environment_that_is_well(each: Any, tmp_path: Path) -> None:
    assert lines(each.run(facts(tmp_path))) == []


def test_what_is_not_deployed_or_has_lost_an_object_is_reported(tmp_path: Path) -> None:
    nothing = facts(tmp_path, mode=None, owner=None, pods={}, inside={})
    assert told(nothing, "deployed") == ["FAIL lab: it is not deployed in team"]
    lost = facts(tmp_path, missing=["Secret lab"])
    assert told(lost, "deployed") == ["FAIL Secret lab: it does not exist"]


def test_a_pod_that_is_refused_is_reported_with_the_words_of_who_refuses_it(tmp_path: Path) -> None:
    alone = {"pods": {"lab-0": pod("lab-0")}}
    quota = facts(tmp_path, **alone, events=[event(owner(), "FailedCreate", QUOTA)])
    (line,) = told(quota, "created")
    assert line.startswith("FAIL Pod lab-1: it cannot be created: the quota few does not allow pods=1 more")
    scc = facts(tmp_path, **alone, events=[event(owner(), "FailedCreate", SCC)])
    (found,) = check(START, "created").run(scc)
    assert "IPC_LOCK" in found.message
    assert "use --mode tcp" in found.hint


def test_a_pod_that_is_missing_without_a_word_is_unknown(tmp_path: Path) -> None:
    silent = facts(tmp_path, pods={"lab-0": pod("lab-0")})
    assert told(silent, "created") == ["UNKNOWN Pod lab-1: it is not created; no event says why"]
    forbidden = replace(silent, events_why="you may not")
    assert told(forbidden, "created") == ["UNKNOWN Pod lab-1: it is not created; you may not"]


def test_a_node_is_to_blame_only_where_a_pod_of_ours_suffers_from_it(tmp_path: Path) -> None:
    gone = cluster.node("gpu-0")
    gone["status"]["conditions"] = [{"type": "Ready", "status": "Unknown", "message": "Kubelet stopped posting"}]
    snapshot = cluster.there(nodes=Maybe([gone, cluster.node("gpu-1")]))
    words = "Node gpu-0: it is not ready: Kubelet stopped posting"
    stuck = facts(tmp_path, snapshot=snapshot, pods={"lab-0": pod("lab-0", ready=False)})
    assert told(stuck, "nodes") == [f"FAIL {words}"]
    assert told(facts(tmp_path, snapshot=snapshot), "nodes") == [f"WARN {words}"]


def test_that_nodes_and_claims_may_not_be_read_matters_only_where_a_pod_waits(tmp_path: Path) -> None:
    snapshot = cluster.there(nodes=Maybe([], "you may not"), claims=Maybe([], "you may not"))
    assert (
        told(facts(tmp_path, snapshot=snapshot), "nodes") == told(facts(tmp_path, snapshot=snapshot), "volumes") == []
    )
    waits = facts(tmp_path, snapshot=snapshot, pods={"lab-0": pod("lab-0", ready=False)})
    assert told(waits, "nodes") == ["UNKNOWN nvidia.com/gpu: nodes cannot be read: you may not"]
    assert told(waits, "volumes") == ["UNKNOWN team: claims cannot be read: you may not"]


def test_a_node_that_offers_none_of_its_gpus_has_lost_its_device_plugin(tmp_path: Path) -> None:
    node = cluster.node("gpu-0", **{"nvidia.com/gpu": "0"})
    node["status"]["capacity"] = {"nvidia.com/gpu": "8"}
    labelled = cluster.node("gpu-1")
    labelled["status"] = {"allocatable": {}, "capacity": {}, "conditions": []}
    labelled["metadata"]["labels"] = {"nvidia.com/gpu.present": "true"}
    short = [Finding("gpus", "nvidia.com/gpu", Verdict.FAIL, "0 of the 2 nodes")]
    found = facts(
        tmp_path,
        snapshot=cluster.there(nodes=Maybe([node, labelled])),
        pods={"lab-0": pending("lab-0", "0/2 nodes are available: 2 Insufficient nvidia.com/gpu.")},
        preflight=short,
    )
    assert told(found, "nodes") == [
        "FAIL Node gpu-0: it has 8 nvidia.com/gpu, and none are allocatable",
        "FAIL Node gpu-1: its label nvidia.com/gpu.present says it has GPUs, and it offers no nvidia.com/gpu",
    ]


def test_a_pod_that_no_node_takes_is_reported_with_who_has_the_gpus(tmp_path: Path) -> None:
    taint = "1 node(s) had taint {gone: }, that the pod didn't tolerate."
    said = f"0/2 nodes are available: 1 Insufficient nvidia.com/gpu, {taint}"
    busy = Finding("in use", "nvidia.com/gpu", Verdict.WARN, "gpu-0: others/greedy")
    found = facts(tmp_path, pods={"lab-0": pending("lab-0", said), "lab-1": pending("lab-1")}, preflight=[busy])
    assert told(found, "scheduled") == [
        "FAIL Pod lab-0: no node takes it: of 2 nodes, 1: too little nvidia.com/gpu free; 1: tainted gone: ",
        "UNKNOWN Pod lab-1: it has no node, and the scheduler gives no reason",
        "FAIL nvidia.com/gpu: gpu-0: others/greedy",
    ]


def test_what_autoscalers_and_resource_claims_say_of_a_pod_is_read(tmp_path: Path) -> None:
    pods = {
        "lab-0": pending("lab-0", "0/2 nodes are available: 2 Insufficient nvidia.com/gpu."),
        "lab-1": pending("lab-1"),
    }
    refused = event(pods["lab-0"], "NotTriggerScaleUp", "pod didn't trigger scale-up: 1 max node group size reached")
    added = event(pods["lab-0"], "TriggeredScaleUp", "pod triggered scale-up: [{gpus 1->2 (max: 2)}]", "Normal")
    karpenter = event(pods["lab-1"], "FailedScheduling", "incompatible with nodepool gpus, no instance type satisfied")
    claims = event(pods["lab-1"], "FailedResourceClaimCreation", "resource claim template gpu: not found")
    events = [
        added,
        {**refused, "lastTimestamp": "2026-11-21T10:05:00Z"},
        {**karpenter, "source": {"component": "karpenter"}},
    ]
    findings = told(facts(tmp_path, pods=pods, events=[*events, claims]), "scheduled")
    assert findings[0].startswith("FAIL Pod lab-0: no node takes it: ")
    assert findings[0].endswith(
        "; the cluster autoscaler adds no node: pod didn't trigger scale-up: 1 max node group size reached"
    )
    assert findings[1] == (
        "FAIL Pod lab-1: it has no node: Karpenter adds no node: incompatible with nodepool gpus, "
        "no instance type satisfied; "
        "its resource claim (DRA) cannot be created: resource claim template gpu: not found"
    )
    plain = told(facts(tmp_path, pods=pods, events=[karpenter]), "scheduled")  # the scheduler's own event
    assert plain[1] == "UNKNOWN Pod lab-1: it has no node, and the scheduler gives no reason"


def test_a_node_selector_that_no_node_has_is_named_while_a_pod_waits(tmp_path: Path) -> None:
    selector = {"nodes": {"selector": {"pool": "trainng"}}}
    waits = {"lab-0": pending("lab-0", "0/2 nodes are available: 2 node(s) didn't match Pod's node affinity/selector.")}
    [_, named] = told(facts(tmp_path, selector, pods=waits), "scheduled")
    assert named == "FAIL nodes.selector: no node has all labels of nodes.selector; none has pool=trainng"
    preflight = checks.all_of(cluster.env_of(tmp_path, selector), cluster.there(), [])
    assert len(told(facts(tmp_path, selector, pods=waits, preflight=preflight), "scheduled")) == 2
    assert told(facts(tmp_path, selector), "scheduled") == []


def test_the_first_cause_of_a_mount_is_reported_and_not_the_time_out_that_follows(tmp_path: Path) -> None:
    waits = one(waiting("ContainerCreating", ""))
    about = waits["pods"]["lab-0"]
    cause = {
        **event(about, "FailedMount", 'MountVolume.SetUp failed for volume "data": mount.nfs: access denied'),
        "firstTimestamp": "2026-11-21T09:58:00Z",
    }
    late = event(about, "FailedMount", "Unable to attach or mount volumes: timed out waiting for the condition")
    [finding] = told(
        facts(tmp_path, **{**waits, "events": [cause, {**late, "lastTimestamp": "2026-11-21T10:02:00Z"}]}), "volumes"
    )
    assert finding.endswith("mount.nfs: access denied")
    [finding] = told(facts(tmp_path, **{**waits, "events": [late]}), "volumes")
    assert "timed out waiting" in finding


def claim(name: str, phase: str = "Pending", storage_class: str = "nfs") -> dict[str, Any]:
    meta = {"name": name, "uid": f"uid-{name}"}
    return {
        "kind": "PersistentVolumeClaim",
        "metadata": meta,
        "spec": {"storageClassName": storage_class},
        "status": {"phase": phase},
    }


def with_claims(folder: Path, *claims: dict[str, Any], **changed: Any) -> Facts:
    waits = pending("lab-0", "0/2 nodes are available: 2 pod has unbound immediate PersistentVolumeClaims.")
    names = [each["metadata"]["name"] for each in claims] or ["lost"]
    waits["spec"]["volumes"] = [{"name": n, "persistentVolumeClaim": {"claimName": n}} for n in names]
    return facts(folder, pods={"lab-0": waits}, snapshot=cluster.there(claims=Maybe(list(claims))), **changed)


def test_a_claim_without_a_volume_is_reported_with_the_reason(tmp_path: Path) -> None:
    work, data = claim("work"), claim("data", storage_class="gone")
    said = event(work, "ProvisioningFailed", "rpc error: quota exceeded")
    assert told(with_claims(tmp_path, work, data, events=[said]), "volumes") == [
        "FAIL PersistentVolumeClaim work: it waits for a volume (ProvisioningFailed): rpc error: quota exceeded",
        "FAIL PersistentVolumeClaim data: there is no storage class gone",
    ]
    later = "rpc error: code = Aborted desc = an operation with the given Volume ID pvc-1 already exists"
    slow = "rpc error: code = DeadlineExceeded desc = context deadline exceeded"
    events = [said, *(event(work, "ProvisioningFailed", text) for text in (slow, later))]
    for order in (events, events[::-1]):
        assert "quota exceeded" in told(with_claims(tmp_path, work, events=order), "volumes")[0]
    assert told(with_claims(tmp_path), "volumes") == ["FAIL PersistentVolumeClaim lost: the claim does not exist"]
    lost = with_claims(tmp_path, claim("work", "Lost"))
    assert told(lost, "volumes") == ["FAIL PersistentVolumeClaim work: its volume is lost"]


def test_a_claim_that_waits_for_its_pod_or_is_bound_is_well(tmp_path: Path) -> None:
    work = claim("work")
    patient = event(work, "WaitForFirstConsumer", "waiting for first consumer", "Normal")
    assert told(with_claims(tmp_path, work, claim("data", "Bound"), events=[patient]), "volumes") == []


def test_mounts_and_networks_that_fail_are_reported_while_the_pod_waits_for_them(tmp_path: Path) -> None:
    waits = one(waiting("ContainerCreating", ""))
    about = waits["pods"]["lab-0"]
    events = [
        event(about, "FailedAttachVolume", 'Multi-Attach error for volume "pvc-1" Volume is already used'),
        event(about, "FailedCreatePodSandBox", "plugin type multus: no network lab-net"),
    ]
    found = facts(tmp_path, **{**waits, "events": events})
    assert told(found, "volumes")[0].startswith("FAIL Pod lab-0: a volume cannot be mounted: Multi-Attach error")
    assert told(found, "network") == [
        "FAIL Pod lab-0: its network cannot be created: plugin type multus: no network lab-net"
    ]
    assert told(facts(tmp_path, events=events), "network") == []


@pytest.mark.parametrize(
    ("message", "hint"),
    [
        ("unauthorized: access denied", "login"),
        ("manifest unknown", "tag"),
        ("x509: certificate signed by unknown authority", "certificate"),
        ("dial tcp: lookup quay.io: no such host", "cannot reach"),
        ("toomanyrequests: rate limit", "pull limit"),
    ],
)
def test_an_image_that_cannot_be_pulled_is_reported_with_what_to_try(tmp_path: Path, message: str, hint: str) -> None:
    waits = one(waiting("ImagePullBackOff"))
    said = event(waits["pods"]["lab-0"], "Failed", f'Failed to pull image "quay.io/team/ml:1": {message}')
    (found,) = check(START, "image").run(facts(tmp_path, **{**waits, "events": [said]}))
    assert found.verdict is Verdict.FAIL
    assert message in found.message
    assert hint in found.hint


def test_a_container_that_cannot_be_made_is_reported(tmp_path: Path) -> None:
    message = 'secret "lab" not found'
    found = facts(tmp_path, **one(waiting("CreateContainerConfigError", message)))
    assert told(found, "container") == [f"FAIL Pod lab-0: ml does not start (CreateContainerConfigError): {message}"]
    assert told(facts(tmp_path, **one(waiting("CrashLoopBackOff"))), "container") == []


def test_the_container_that_runs_first_is_reported_with_the_end_of_its_log(tmp_path: Path) -> None:
    waits = one(waiting("PodInitializing", ""), log=Log(["cp: cannot create /home/x: No space left on device"]))
    init = {"name": "prepare", "ready": False, "restartCount": 2, "state": {"terminated": {"exitCode": 1}}}
    waits["pods"]["lab-0"]["status"]["initContainerStatuses"] = [init]
    (line,) = told(facts(tmp_path, **waits), "prepare")
    end = "its log ends: cp: cannot create /home/x: No space left on device (2 restarts)"
    assert line == f"FAIL Pod lab-0: prepare ended with exit code 1; {end}"


@pytest.mark.parametrize(
    ("ended", "words"),
    [
        ({"exitCode": 137, "reason": "OOMKilled"}, "ran out of memory (OOMKilled)"),
        ({"exitCode": 139, "reason": "Error"}, "was killed by signal 11 (SIGSEGV)"),
        ({"exitCode": 2, "reason": "Error"}, "ended with exit code 2"),
    ],
)
def test_a_container_that_ends_again_and_again_is_reported_with_how(tmp_path: Path, ended: Any, words: str) -> None:
    again = {**waiting("CrashLoopBackOff"), "lastState": {"terminated": ended}, "restartCount": 4}
    (line,) = told(facts(tmp_path, **one(again, log=Log(["one", "last words"]))), "crash")
    assert line == f"FAIL Pod lab-0: ml {words}; its log ends: one / last words (4 restarts)"


def test_no_secret_is_reported_whoever_wrote_it(tmp_path: Path) -> None:
    ended = {"exitCode": 1, "message": "cannot log in with token=hunter2hunter2"}
    again = {**waiting("CrashLoopBackOff"), "lastState": {"terminated": ended}}
    (found,) = run_checks(START, facts(tmp_path, **one(again))).cause
    assert found.message.endswith("cannot log in with token=<removed> (0 restarts)")


def test_a_container_that_runs_again_is_a_warning(tmp_path: Path) -> None:
    before = {"lastState": {"terminated": {"exitCode": 1}}, "restartCount": 1, "state": {"running": {}}}
    (line,) = told(facts(tmp_path, pods={"lab-0": pod("lab-0", before)}), "crash")
    assert line.startswith("WARN Pod lab-0: it runs; before, it ended with exit code 1")


def test_a_pod_that_was_evicted_or_is_to_be_gone_is_reported(tmp_path: Path) -> None:
    evicted, leaving = pod("lab-0", ready=False), pod("lab-1")
    evicted["status"] |= {"reason": "Evicted", "message": "The node was low on resource: memory."}
    leaving["metadata"]["deletionTimestamp"] = "2026-11-21T10:00:00Z"
    assert told(facts(tmp_path, pods={"lab-0": evicted, "lab-1": leaving}), "terminated") == [
        "FAIL Pod lab-0: it was terminated (Evicted): The node was low on resource: memory.",
        "WARN Pod lab-1: it is being deleted since 2026-11-21T10:00:00Z",
    ]


def running(*log: str, why: str = "") -> dict[str, Any]:
    return one({"state": {"running": {}}}, log=Log(log, why=why))


def test_a_pod_that_runs_and_is_not_ready_is_reported_with_how_far_its_start_script_came(tmp_path: Path) -> None:
    empty = facts(tmp_path, **running("gpuctl: rank 0, mode tcp", "gpuctl: the Secret is empty: gpuctl cluster deploy"))
    assert told(empty, "ready") == ["FAIL Pod lab-0: the environment's Secret has no keys: the start script waits"]
    (line,) = told(facts(tmp_path, **running("gpuctl: rank 0, mode tcp", "noise")), "ready")
    assert line == "FAIL Pod lab-0: it runs and is not ready; the last line of its log: gpuctl: rank 0, mode tcp"
    (line,) = told(facts(tmp_path, **running(why="forbidden")), "ready")
    assert line == "UNKNOWN Pod lab-0: it runs and is not ready; its log cannot be read: forbidden"


def test_an_sshd_that_does_not_stay_up_is_reported_and_one_that_is_not_there_as_well(tmp_path: Path) -> None:
    again = ["Bind to port 2222 on 0.0.0.0 failed", "gpuctl: /usr/sbin/sshd ended with 255, once more in 5 s"] * 3
    assert told(facts(tmp_path, logs={"lab-0": Log(again)}), "ssh") == [
        "FAIL Pod lab-0: sshd exits repeatedly: Bind to port 2222 on 0.0.0.0 failed"
    ]
    assert told(facts(tmp_path, logs={"lab-0": Log(again[:2])}), "ssh") == []
    none = Log(["gpuctl: no sshd in the image: launchers that use ssh do not work, those without do"])
    assert told(facts(tmp_path, logs={"lab-0": none}), "ssh")[0].startswith("WARN Pod lab-0: no sshd")


def test_a_low_memlock_and_missing_gpus_are_read_from_the_start_script(tmp_path: Path) -> None:
    logs = {"lab-0": Log(["gpuctl: memlock 8192", "gpuctl: gpus 7 of 8"]), "lab-1": Log(["gpuctl: memlock unlimited"])}
    found = facts(tmp_path, ROCE, logs=logs)
    assert told(found, "memlock") == ["WARN Pod lab-0: its user may lock 8 MiB: RDMA fails beyond that"]
    assert told(found, "gpus") == ["FAIL Pod lab-0: it sees 7 of its 8 GPUs"]
    unknown = facts(tmp_path, logs={"lab-0": Log(["gpuctl: gpus unknown: no nvidia-smi"])})
    assert told(unknown, "gpus") == ["UNKNOWN Pod lab-0: its GPUs are unknown: no nvidia-smi"]


def test_the_first_failure_is_the_cause_and_what_follows_from_it_its_evidence(tmp_path: Path) -> None:
    found = run_checks(START, with_claims(tmp_path, claim("work", storage_class="gone")))
    assert [each.check for each in found.cause] == ["volumes"]
    assert [each.check for each in found.evidence] == ["scheduled"]
    assert found.verdict is Verdict.FAIL


def test_two_pods_in_different_trouble_have_a_cause_and_something_that_is_also_wrong(tmp_path: Path) -> None:
    pods = {"lab-0": pod("lab-0", waiting("ErrImagePull"), ready=False), "lab-1": pod("lab-1", ready=False)}
    pods["lab-1"]["status"] |= {"reason": "Evicted", "message": "memory"}
    found = run_checks(START, facts(tmp_path, pods=pods))
    assert [each.check for each in found.cause] == ["terminated"]
    assert "image" in [each.check for each in found.also]


def test_nothing_wrong_is_an_honest_not_found(tmp_path: Path) -> None:
    found = run_checks(START, facts(tmp_path))
    assert found.cause == []
    assert found.clean
    assert "deployed" in found.checked
