"""A stand-in for the Kubeflow MPI operator: makes of an MPIJob the objects that the real one (v2beta1) makes.

A headless service, a host file, keys, a pod for each worker, and when they are ready a Job for the launcher; all of
them belong to the MPIJob, so that they go with it.
"""

from __future__ import annotations

import contextlib
import copy
import threading
from types import TracebackType
from typing import Any

from tests.rig.kube.plane import Plane

JOBS = "/apis/kubeflow.org/v2beta1/namespaces/default/mpijobs"
CORE, BATCH = "/api/v1/namespaces/default", "/apis/batch/v1/namespaces/default"
OURS = "training.kubeflow.org"


class StandinOperator:
    """Within its block it acts on MPIJobs."""

    def __init__(self, cluster: Plane) -> None:
        self.cluster = cluster
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self._act_on_all, daemon=True, name="standin-operator")
        self.made: set[str] = set()

    def __enter__(self) -> StandinOperator:
        self.thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.ended.set()
        self.thread.join()

    def _act_on_all(self) -> None:
        while not self.ended.wait(0.1):
            with contextlib.suppress(OSError, AssertionError):
                for job in self.cluster.api("GET", JOBS)["items"]:
                    if "deletionTimestamp" not in job["metadata"]:
                        self._act(job)

    def _act(self, job: dict[str, Any]) -> None:
        name = job["metadata"]["name"]
        if name not in self.made:
            self.made.add(name)
            self._begin(job)
        chosen = f"{OURS}%2Fjob-name%3D{name},{OURS}%2Fjob-role%3Dworker"
        found = self.cluster.api("GET", f"{CORE}/pods?labelSelector={chosen}")["items"]
        ready = [each for each in found if any(is_ready(one) for one in each["status"].get("conditions", []))]
        count = job["spec"]["mpiReplicaSpecs"]["Worker"]["replicas"]
        if job["spec"]["launcherCreationPolicy"] == "AtStartup" or len(ready) == count:
            with contextlib.suppress(AssertionError):  # it is there
                self.cluster.api("POST", f"{BATCH}/jobs", launcher(job))

    def _begin(self, job: dict[str, Any]) -> None:
        name, spec = job["metadata"]["name"], job["spec"]["mpiReplicaSpecs"]["Worker"]
        created = {"type": "Created", "status": "True", "reason": "MPIJobCreated", "message": f"MPIJob {name} is made"}
        self.cluster.api("PATCH", f"{JOBS}/{name}/status", {"status": {"conditions": [created]}})
        selector = {f"{OURS}/operator-name": "mpi-operator", f"{OURS}/job-name": name}
        service = {"clusterIP": "None", "selector": selector}
        hosts = "".join(f"{name}-worker-{index}.{name}.default.svc\n" for index in range(spec["replicas"]))
        self._post("services", {"metadata": owned(job, name), "spec": service})
        self._post("configmaps", {"metadata": owned(job, f"{name}-config"), "data": {"hostfile": hosts}})
        keys = {"ssh-privatekey": "standin", "ssh-publickey": "standin"}
        self._post("secrets", {"metadata": owned(job, f"{name}-ssh"), "stringData": keys})
        for index in range(spec["replicas"]):
            self._post("pods", worker(job, index))

    def _post(self, kind: str, body: dict[str, Any]) -> None:
        self.cluster.api("POST", f"{CORE}/{kind}", body)


def is_ready(condition: dict[str, Any]) -> bool:
    return bool(condition["type"] == "Ready" and condition["status"] == "True")


def owned(job: dict[str, Any], name: str) -> dict[str, Any]:
    """Metadata of what belongs to a job."""
    of = {key: job[key] for key in ("apiVersion", "kind")}
    owner = {**of, **{key: job["metadata"][key] for key in ("name", "uid")}}
    return {"name": name, "ownerReferences": [{**owner, "controller": True, "blockOwnerDeletion": True}]}


def template(job: dict[str, Any], kind: str, hostname: str) -> dict[str, Any]:
    """A pod template as the operator completes it: its labels, the pod's name on the network, its own keys."""
    spec = job["spec"]["mpiReplicaSpecs"][kind]
    found: dict[str, Any] = copy.deepcopy(spec["template"])
    name = job["metadata"]["name"]
    labels = {"operator-name": "mpi-operator", "job-name": name, "job-role": kind.lower()}
    found["metadata"]["labels"] |= {f"{OURS}/{key}": value for key, value in labels.items()}
    more = {"hostname": hostname, "subdomain": name, "restartPolicy": spec["restartPolicy"]}
    found["spec"] |= more
    found["spec"]["volumes"].append({"name": "ssh-auth", "secret": {"secretName": f"{name}-ssh"}})
    mount = {"name": "ssh-auth", "mountPath": job["spec"]["sshAuthMountPath"]}
    found["spec"]["containers"][0]["volumeMounts"].append(mount)
    return found


def worker(job: dict[str, Any], index: int) -> dict[str, Any]:
    """A worker's pod."""
    name = f"{job['metadata']['name']}-worker-{index}"
    found = template(job, "Worker", name)
    found["metadata"] |= owned(job, name)
    found["metadata"]["labels"][f"{OURS}/replica-index"] = str(index)
    return found


def launcher(job: dict[str, Any]) -> dict[str, Any]:
    """The launcher's Job, whose pod the cluster's own controller makes."""
    name = f"{job['metadata']['name']}-launcher"
    policy = job["spec"]["runPolicy"]
    spec = {"template": template(job, "Launcher", name), "backoffLimit": policy["backoffLimit"]}
    return {"metadata": owned(job, name), "spec": {**spec, "activeDeadlineSeconds": policy["activeDeadlineSeconds"]}}
