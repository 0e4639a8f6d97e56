"""Sessions in pods: what is asked of the cluster, what an order waits for, and what closes a node."""

from __future__ import annotations

import base64
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpuctl.core.errors import GpuctlError, InvalidInput, Unreachable
from gpuctl.domain.kube_errors import Forbidden
from gpuctl.edges.kube import port_stream
from gpuctl.edges.kube.cluster import Kind, Object
from gpuctl.edges.ssh_keys import pair
from gpuctl.reservations.agent import InUse, NodeSession, NotObeyed, NotReady, NoWhole, PodValues, Unable
from gpuctl.reservations.database import Stored
from gpuctl.reservations.rules.idle import Use
from gpuctl.reservations.rules.model import Node
from gpuctl.reservations.rules.reconcile import Session
from gpuctl.reservations.rules.reports import Order, OrderKind
from gpuctl.workflows import reservations_cluster
from gpuctl.workflows.reservations_cluster import node_of
from gpuctl.workflows.reservations_disk_objects import claim, claim_name
from gpuctl.workflows.reservations_pod_objects import USE, Sizes, read_use
from gpuctl.workflows.reservations_pods import CLOSED_S, STUCK_S, ClusterSite, PodNode, PodsRequest
from tests.rig.standin_namespace import StandinNamespace, merged

KEY = pair()[1]
VALUES = PodValues("r1-1", f"{KEY} reservation\n")
PREPARE = Order(OrderKind.PREPARE, "n1", 5, "r1", 1, (0, 1))
REQUEST = PodsRequest("lab", "team", "ml:1", {}, Sizes())
RUNS = {"containerStatuses": [{"name": "main", "state": {"running": {}}}]}
READY = [{"type": "Ready", "status": "True"}]


class Cluster(StandinNamespace):
    """The namespace, one node, and pods of other namespaces."""

    def __init__(self) -> None:
        super().__init__()
        self.others: list[Object] = []
        self.node: Object | None = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": "n1"},
            "spec": {},
            "status": {"conditions": READY, "allocatable": {"nvidia.com/gpu": "4"}},
        }
        self.down = False

    def get(self, kind: Kind, name: str) -> Object | None:
        return self.node if kind.kind == "Node" else super().get(kind, name)

    def find_everywhere(self, kind: Kind, fields: str) -> list[Object]:
        assert (kind.kind, fields) == ("Pod", "spec.nodeName=n1")
        return [*(merged(pod, {"metadata": {"namespace": "team"}}) for pod in self.pods()), *self.others]

    def once(self, request: Any, silent_s: float = 0) -> Object:
        if self.down:
            raise Unreachable(request.doing, "no answer")
        return super().once(request, silent_s)

    def pods(self) -> list[Object]:
        return [item for path, item in self.items.items() if "/pods/" in path]

    def kinds(self) -> list[str]:
        return sorted(str(item["kind"]) for item in self.items.values())

    def status(self, status: Object, **more: Object) -> None:
        """The kubelet's report on the only pod."""
        [path] = [path for path in self.items if "/pods/" in path]
        self.items[path] = merged(self.items[path], {"status": status, **more})


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def agent(cluster: Cluster, clock: Clock | None = None) -> PodNode:
    stored = Stored("service-1", "desk:/state", {})
    room = {"cpu": "100", "memory": "1000Gi"}
    return PodNode("n1", 4, ClusterSite(cluster, stored, REQUEST, {"n1": room}, clock or Clock()))


def prepared(cluster: Cluster, values: PodValues = VALUES) -> PodNode:
    """The agent after its first order, which made the pod."""
    made = agent(cluster)
    variables = {"GPUCTL_RESERVATION": "r1", "GPUCTL_NODES": "a b"}
    with pytest.raises(NotReady, match="its pod was made"):
        made.obey(PREPARE, "ada", variables, values)
    return made


def greets(monkeypatch: pytest.MonkeyPatch, answer: bytes) -> None:
    monkeypatch.setattr(port_stream, "first_bytes", lambda *_: answer)


def test_the_pod_has_its_part_of_the_node_its_keys_and_variables_and_runs_there_alone(cluster: Cluster) -> None:
    prepared(cluster)
    [pod] = cluster.pods()
    main = pod["spec"]["containers"][0]
    assert main["resources"]["limits"] == {"cpu": "45.000", "memory": "460800Mi", "nvidia.com/gpu": "2"}
    assert main["resources"]["requests"] == main["resources"]["limits"]
    terms = pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    here = {"key": "metadata.name", "operator": "In", "values": ["n1"]}
    assert terms["nodeSelectorTerms"] == [{"matchFields": [here]}]
    variables = {one["name"]: one["value"] for one in main["env"]}
    assert variables["GPUCTL_RESERVATION"] == "r1"
    assert variables["GPUCTL_VARIABLES"] == '"GPUCTL_NODES=a b" "GPUCTL_RESERVATION=r1"'
    assert {"name": "workspace", "emptyDir": {}} in pod["spec"]["volumes"]
    assert pod["metadata"]["labels"]["app.kubernetes.io/created-by"] == "ada"
    keys = cluster.items[cluster.name("Secret", "r1-1-keys")]["data"]["authorized_keys"]
    assert base64.b64decode(keys).decode() == f"{KEY} reservation\n"


def test_an_order_that_is_repeated_makes_nothing_twice_and_ends_when_sshd_answers(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = prepared(cluster)
    before = dict(cluster.items)
    with pytest.raises(NotReady, match="the pod waits for a node"):
        made.obey(PREPARE, "ada", {}, VALUES)
    assert cluster.items == before
    cluster.status({"conditions": READY})
    greets(monkeypatch, b"")
    with pytest.raises(NotReady):
        made.obey(PREPARE, "ada", {}, VALUES)
    greets(monkeypatch, b"SSH-2.0-OpenSSH_9.2\r\n")
    made.obey(PREPARE, "ada", {}, VALUES)
    assert made.observe(5).sessions == [Session("r1", 1, (0, 1))]
    host = cluster.pods()[0]["metadata"]
    assert made.login("r1", 1).host_key == host["annotations"]["gpuctl/host-key"]
    assert made.login("r1", 1).alias == f"gpuctl-{host['uid']}"
    with pytest.raises(NotObeyed, match="n1 has no pod of reservation r2"):
        made.login("r2", 1)


def test_a_container_that_cannot_start_is_waited_for_a_while_and_then_named(cluster: Cluster) -> None:
    clock = Clock()
    made = agent(cluster, clock)
    with pytest.raises(NotReady):
        made.obey(PREPARE, "ada", {}, VALUES)
    waiting = {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}
    status = {"containerStatuses": [{"name": "main", "state": waiting}]}
    cluster.status(status, spec={**cluster.pods()[0]["spec"], "nodeName": "n1"})
    for now, error in ((0.0, NotReady), (float(STUCK_S), NotReady), (STUCK_S + 1.0, NotObeyed)):
        clock.now = now
        with pytest.raises(error, match=r"does not start on n1: .*ImagePullBackOff"):
            made.obey(PREPARE, "ada", {}, replace(VALUES, image="mine:1"))


def test_a_fault_of_the_site_closes_the_node_for_a_while_and_costs_nobody_the_place(cluster: Cluster) -> None:
    clock = Clock()
    made = agent(cluster, clock)
    cluster.refuse = lambda request: Forbidden(request.doing, "exceeded quota: team")
    with pytest.raises(InUse, match="exceeded quota: team"):
        made.obey(PREPARE, "ada", {}, VALUES)
    clock.now = CLOSED_S - 1
    assert "exceeded quota: team" in made.observe(5).closed
    clock.now = CLOSED_S
    assert made.observe(5).closed == ""


def test_a_pod_that_was_evicted_while_it_started_ends_the_attempt(cluster: Cluster) -> None:
    made = prepared(cluster)
    cluster.status({"phase": "Failed", "reason": "Evicted", "message": "low on memory"})
    with pytest.raises(NotObeyed, match="the pod has ended: Evicted: low on memory"):
        made.obey(PREPARE, "ada", {}, replace(VALUES, image="mine:1"))
    found = made.observe(5)
    assert (found.sessions, found.ends, found.closed) == ([], {"r1": "Evicted: low on memory"}, "")
    with pytest.raises(InUse, match="the pod has ended: Evicted: low on memory"):
        made.obey(PREPARE, "ada", {}, VALUES)
    assert "Evicted" in made.observe(5).closed


def test_pods_of_others_with_gpus_and_a_cordon_close_the_node(cluster: Cluster) -> None:
    limits = {"resources": {"limits": {"nvidia.com/gpu": "2"}}}
    other = {"metadata": {"name": "train", "namespace": "vision"}, "spec": {"containers": [limits]}}
    cluster.others = [
        other,
        {**other, "status": {"phase": "Succeeded"}},
        {"metadata": {"name": "web", "namespace": "a"}, "spec": {"containers": [{}]}},
    ]
    made = agent(cluster)
    assert made.observe(0).open_by == ["the pod vision/train has 2 GPUs without a session"]
    with pytest.raises(InUse, match="vision/train has 2 GPUs"):
        made.obey(PREPARE, "ada", {}, VALUES)
    assert cluster.items == {}
    cluster.others = []
    assert cluster.node is not None
    cluster.node["spec"]["unschedulable"] = True
    assert made.observe(5).closed == "it is cordoned"
    cluster.node["status"]["allocatable"] = {"nvidia.com/gpu": "3"}
    assert "it offers 3 of 4 GPUs" in made.observe(5).closed


def test_a_node_without_a_kubelet_may_be_lost_and_a_cluster_without_an_answer_loses_none(cluster: Cluster) -> None:
    made = agent(cluster)
    cluster.down = True
    with pytest.raises(Unable, match="no answer"):
        made.obey(PREPARE, "ada", {}, VALUES)
    cluster.down = False
    assert cluster.node is not None
    cluster.node["status"]["conditions"] = [{"type": "Ready", "status": "Unknown", "message": "stopped posting"}]
    with pytest.raises(OSError, match="its kubelet is not ready: stopped posting") as error:
        made.observe(5)
    assert not isinstance(error.value, Unable)
    cluster.node = None
    with pytest.raises(OSError, match="the cluster does not have this node") as error:
        made.observe(5)
    assert not isinstance(error.value, Unable)


def test_clearing_ends_the_pod_and_removes_what_belongs_to_it_and_no_disk(cluster: Cluster) -> None:
    made = prepared(cluster, replace(VALUES, disk="ada/data"))
    cluster.add({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "r1-1-keys-of-others"}})
    claim = claim_name("ada/data")
    volumes = cluster.pods()[0]["spec"]["volumes"]
    assert {"name": "workspace", "persistentVolumeClaim": {"claimName": claim}} in volumes
    clear = Order(OrderKind.CLEAR, "n1", 6, "r1", 1)
    with pytest.raises(NotReady, match="Pod r1-1 ends"):
        made.obey(clear, "ada")
    made.obey(clear, "ada")
    assert sorted(path.rsplit("/", 1)[-1] for path in cluster.items) == [claim, "r1-1-keys-of-others"]
    made.obey(clear, "ada")
    with pytest.raises(NotObeyed, match="order 5 is older than 6"):
        made.obey(PREPARE, "ada", {}, VALUES)


def test_new_keys_are_written_to_the_secret_and_waited_for_in_the_pod(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, of_bob = prepared(cluster), pair()[1]
    values = replace(VALUES, keys=f"{KEY} reservation\n{of_bob} github:bobgh\n")
    inside = [VALUES.keys, values.keys]
    monkeypatch.setattr(made, "_run", lambda *_: inside[0])
    give = Order(OrderKind.ACCESS, "n1", 5, "r1", 1, (0, 1), access=1, people=("bob",))
    with pytest.raises(NotReady, match="does not have the new keys yet"):
        made.obey(give, "ada", {}, values)
    secret = cluster.items[cluster.name("Secret", "r1-1-keys")]
    assert base64.b64decode(secret["data"]["authorized_keys"]).decode() == values.keys
    writes = len(cluster.writes)
    inside.pop(0)
    made.obey(give, "ada", {}, values)
    assert len(cluster.writes) == writes  # nothing is written twice
    made.obey(give, "ada", {}, values)


def test_keys_change_also_without_the_right_to_change_pods(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    made, keys = prepared(cluster), f"{pair()[1]} bob\n"
    monkeypatch.setattr(made, "_run", lambda *_: keys)
    cluster.refuse = lambda request: Forbidden(request.doing, "no") if "/pods/" in request.path else None
    made.obey(Order(OrderKind.ACCESS, "n1", 5, "r1", 1, (0, 1)), "ada", {}, replace(VALUES, keys=keys))


def test_a_session_without_its_pod_or_its_secret_takes_no_keys(cluster: Cluster) -> None:
    give = Order(OrderKind.ACCESS, "n1", 5, "r1", 1, (0, 1))
    with pytest.raises(NotObeyed, match="n1 has no pod of reservation r1"):
        agent(cluster).obey(give, "ada", {}, VALUES)
    made = prepared(cluster)
    del cluster.items[cluster.name("Secret", "r1-1-keys")]
    with pytest.raises(NotObeyed, match="the Secret of its keys was deleted"):
        made.obey(give, "ada", {}, VALUES)


WHOLE = replace(PREPARE, gpus=(0, 1, 2, 3))


@pytest.mark.parametrize(("pages", "huge"), [("10Gi", {"hugepages-2Mi": "5120Mi"}), ("1Gi", {}), (None, {})])
def test_a_whole_node_has_its_efa_adapters_and_huge_pages_where_there_are_enough(
    cluster: Cluster, pages: str | None, huge: dict[str, str]
) -> None:
    assert cluster.node is not None
    cluster.node["status"]["allocatable"]["vpc.amazonaws.com/efa"] = "16"
    room = {"cpu": "100", "memory": "1000Gi", **({"hugepages-2Mi": pages} if pages else {})}
    site = ClusterSite(cluster, Stored("service-1", "desk:/state", {}), REQUEST, {"n1": room}, Clock())
    with pytest.raises(NotReady):
        PodNode("n1", 4, site).obey(WHOLE, "ada", {}, replace(VALUES, efa=16))
    [pod] = cluster.pods()
    resources = pod["spec"]["containers"][0]["resources"]
    assert resources["requests"] == resources["limits"]
    assert {"vpc.amazonaws.com/efa": "16", **huge}.items() <= resources["limits"].items()
    assert ("hugepages-2Mi" in resources["limits"]) == bool(huge)
    assert "vpc.amazonaws.com/efa" not in pod["spec"]["initContainers"][0]["resources"]["limits"]


def test_a_node_that_offers_fewer_adapters_now_takes_no_whole_session_and_says_why(cluster: Cluster) -> None:
    assert cluster.node is not None
    cluster.node["status"]["allocatable"]["vpc.amazonaws.com/efa"] = "15"
    clock = Clock()
    made = agent(cluster, clock)
    with pytest.raises(NoWhole, match="it offers 15 of 16 EFA adapters to pods"):
        made.obey(WHOLE, "ada", {}, replace(VALUES, efa=16))
    read = made.observe(5)
    assert (read.closed, "15 of 16 EFA" in read.no_whole) == ("", True)
    assert cluster.pods() == []
    with pytest.raises(NotReady, match="its pod was made"):  # a part of the node has no adapters
        made.obey(PREPARE, "ada", {}, VALUES)
    clock.now += CLOSED_S
    assert made.observe(5).no_whole == ""


def test_a_node_of_a_cluster_has_the_adapters_that_it_offers() -> None:
    capacity = {"nvidia.com/gpu": "8", "vpc.amazonaws.com/efa": "32"}
    assert node_of({"metadata": {"name": "n1"}, "status": {"capacity": capacity}}, "h100").efa == 32
    del capacity["vpc.amazonaws.com/efa"]
    assert node_of({"metadata": {"name": "n1"}, "status": {"capacity": capacity}}, "h100").efa == 0


def test_cleaning_keeps_the_sessions_in_time(cluster: Cluster) -> None:
    made = prepared(cluster)
    with pytest.raises(NotReady):
        made.obey(replace(PREPARE, reservation="r2", attempt=3, gpus=(2,)), "bob", {}, replace(VALUES, name="r2-3"))
    clean = Order(OrderKind.CLEAN_NODE, "n1", 7, keep=(("r2", 3),))
    with pytest.raises(NotReady):
        made.obey(clean, "")
    made.obey(clean, "")
    assert [pod["metadata"]["name"] for pod in cluster.pods()] == ["r2-3"]
    assert cluster.kinds() == ["ConfigMap", "Pod", "Secret", "Secret"]


def test_a_hand_edit_or_another_namespace_hides_no_pod(cluster: Cluster) -> None:
    made = prepared(cluster)
    [path] = [path for path in cluster.items if "/pods/" in path]
    del cluster.items[path]["metadata"]["annotations"]["gpuctl/node"]
    assert made.observe(5).sessions == [Session("r1", 1, (0, 1))]
    pod = merged(cluster.items[path], {"metadata": {"namespace": "elsewhere"}})
    cluster.others = [pod]
    assert made.observe(5).open_by == ["the pod elsewhere/r1-1 has 2 GPUs without a session"]
    cluster.others = []
    with pytest.raises(NotReady, match="Pod r1-1 ends"):
        made.obey(Order(OrderKind.CLEAR, "n1", 6, "r1", 1), "ada")


def test_a_pod_that_ends_already_is_no_session_and_no_new_order(cluster: Cluster) -> None:
    made = prepared(cluster)
    [path] = [path for path in cluster.items if "/pods/" in path]
    cluster.items[path]["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    found = made.observe(5)
    assert (found.sessions, found.ends) == ([], {"r1": "its pod was deleted"})
    with pytest.raises(NotReady, match="Pod r1-1 ends"):
        made.obey(Order(OrderKind.CLEAR, "n1", 6, "r1", 1), "ada")


def test_clearing_an_attempt_leaves_the_next_one(cluster: Cluster) -> None:
    made = prepared(cluster)
    made.obey(Order(OrderKind.CLEAR, "n1", 6, "r1", 2), "ada")
    assert [pod["metadata"]["name"] for pod in cluster.pods()] == ["r1-1"]
    assert cluster.kinds() == ["ConfigMap", "Pod", "Secret", "Secret"]


def test_a_disk_of_another_service_is_not_taken(cluster: Cluster) -> None:
    cluster.add(claim("service-2", "ada/data", "ada", "1Gi", ""))
    with pytest.raises(NotObeyed, match="was not made for the disk ada/data of these reservations"):
        agent(cluster).obey(PREPARE, "ada", {}, replace(VALUES, disk="ada/data", image="mine:1"))
    assert cluster.pods() == []


def test_a_claim_of_somebody_else_is_no_disk(cluster: Cluster) -> None:
    meta = {"name": claim_name("ada/data")}
    cluster.add({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": meta})
    with pytest.raises(NotObeyed, match="was not made for the disk ada/data"):
        agent(cluster).obey(PREPARE, "ada", {}, replace(VALUES, disk="ada/data"))
    assert cluster.pods() == []


def test_what_the_cluster_refuses_ends_the_attempt_with_its_words(cluster: Cluster) -> None:
    cluster.refuse = lambda request: Forbidden(request.doing, "exceeded quota: team")
    with pytest.raises(NotObeyed, match="exceeded quota: team"):
        agent(cluster).obey(PREPARE, "ada", {}, replace(VALUES, image="mine:1"))


def test_the_pods_of_a_gang_have_names_for_each_other(cluster: Cluster) -> None:
    prepared(cluster, replace(VALUES, name="r1-1-0", gang="r1"))
    [pod] = cluster.pods()
    assert (pod["spec"]["hostname"], pod["spec"]["subdomain"]) == ("r1-1-0", "r1")
    service = cluster.items[cluster.name("Service", "r1")]["spec"]
    assert service["clusterIP"] == "None"
    assert service["selector"].items() <= pod["metadata"]["labels"].items()


# ---- nodes and use ---------------------------------------------------------------------------------------------------


def kube_node(labels: dict[str, str], **capacity: str) -> Object:
    resources = {name.replace("_", "/"): text for name, text in capacity.items()}
    return {"metadata": {"name": "n1", "labels": labels}, "status": {"capacity": resources}}


PRODUCT = {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3", "topology.kubernetes.io/zone": "z1"}


def test_a_node_has_its_type_by_its_labels() -> None:
    row = node_of(kube_node(PRODUCT, **{"nvidia.com/gpu": "8"}), None)
    assert (row.gpu_type, len(row.allocated), row.zone, row.place) == ("h100", 8, "z1", "")
    by_instance = kube_node({"node.kubernetes.io/instance-type": "p5e.48xlarge"}, **{"nvidia.com/gpu": "8"})
    assert node_of(by_instance, None).gpu_type == "h200"
    assert node_of(kube_node({}, **{"nvidia.com/gpu": "1"}), "L4").gpu_type == "l4"


@pytest.mark.parametrize(
    ("node", "wrong"),
    [
        (kube_node({}, **{"nvidia.com/gpu": "8"}), "nor node.kubernetes.io/instance-type names its GPU type"),
        (kube_node(PRODUCT, **{"nvidia.com/mig-1g.10gb": "7"}), "it offers parts of GPUs, or none"),
        (kube_node(PRODUCT, **{"nvidia.com/gpu": "8", "nvidia.com/mig-1g.10gb": "7"}), "it offers parts of GPUs"),
        (kube_node(PRODUCT, **{"nvidia.com/gpu.shared": "8"}), "it offers parts of GPUs, or none"),
        (kube_node(PRODUCT), "it offers parts of GPUs, or none"),
    ],
)
def test_a_node_whose_gpus_cannot_be_shared_is_refused(node: Object, wrong: str) -> None:
    with pytest.raises(InvalidInput, match=wrong):
        node_of(node, None)


def test_a_known_node_without_gpus_now_stays_and_a_new_one_is_refused() -> None:
    broken = kube_node(PRODUCT)
    stored = Stored("service-1", "desk", {"n1": Node("n1", "h100", (None,) * 8, place="uid-1")})
    notes = list[str]()
    [row] = reservations_cluster._rows([broken], None, stored, notes.append)
    assert row.allocated == (None,) * 8
    assert "it offers 0 of 8 GPUs to pods" in notes[0]
    good = {**kube_node(PRODUCT, **{"nvidia.com/gpu": "8"}), "metadata": {"name": "n2", "labels": PRODUCT}}
    unknown = replace(stored, nodes={})
    assert [row.name for row in reservations_cluster._rows([broken, good], None, unknown, notes.append)] == ["n2"]
    assert "it offers parts of GPUs, or none" in notes[-2]
    with pytest.raises(InvalidInput, match="it offers parts of GPUs, or none"):
        reservations_cluster._rows([broken], None, unknown, notes.append)


@pytest.mark.parametrize(
    ("output", "use"),
    [
        ("connections 2\n0\n97\n", Use(97.0, 2)),
        ("connections 0\n0\n0\n", Use(0.0, 0)),
        ("connections 0\n0\n[N/A]\n", Use(None, 0)),
        ("connections 0\n5\n[N/A]\n", Use(5.0, 0)),
        ("connections 0\n", Use(None, 0)),
        ("connections x\n0\n", Use(0.0, None)),
        ("", Use(None, None)),
        ("connections 0\n101\n", Use(None, 0)),
        ("connections ²\n²\n", Use(None, None)),
        (f"connections {'9' * 5000}\n{'9' * 5000}\n", Use(None, None)),
    ],
)
def test_unknown_use_is_not_idle(output: str, use: Use) -> None:
    assert read_use(output) == use


def test_the_program_that_reads_use_runs_in_any_shell(tmp_path: Path) -> None:
    fake = tmp_path / "nvidia-smi"
    fake.write_text("#!/bin/sh\necho 7\n")
    fake.chmod(0o755)
    argv = ["sh", "-c", USE]
    done = subprocess.run(argv, env={"PATH": f"{tmp_path}:/usr/bin:/bin"}, capture_output=True, text=True, check=True)
    assert read_use(done.stdout).gpu_percent == 7.0
    assert read_use(done.stdout).connections is not None


def test_a_pod_that_does_not_answer_has_unknown_use(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    made = prepared(cluster)

    def fails(*_: object) -> str:
        raise GpuctlError("run sh", "no answer")

    monkeypatch.setattr(made, "_run", fails)
    rows = [NodeSession("r1", "ada", (0,)), NodeSession("r9", "ada", (1,))]
    assert made.use(rows) == {"r1": Use(None, None), "r9": Use(None, None)}


def test_a_warning_goes_to_the_pods_of_the_person_alone(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    made, shown = prepared(cluster), list[tuple[str, str]]()
    cluster.status(RUNS)
    with pytest.raises(NotReady):  # a second session, which does not run yet
        made.obey(replace(PREPARE, reservation="r2", gpus=(2,)), "ada", {}, replace(VALUES, name="r2-1"))
    answers = ["2\n", "²\n", "9" * 5000]

    def run(name: str, argv: list[str]) -> str:
        shown.append((name, argv[-1]))
        return answers.pop(0)

    monkeypatch.setattr(made, "_run", run)
    assert made.warn("ada", "it ends").terminals == 2
    assert shown == [("r1-1", "it ends")]
    assert [made.warn("ada", "it ends").terminals for _ in range(2)] == [0, 0]  # its shell prints what it likes
    with pytest.raises(NotObeyed, match="bob has no pod there"):
        made.warn("bob", "it ends")
