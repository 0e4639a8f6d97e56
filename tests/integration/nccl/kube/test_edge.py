"""gpuctl's edge to Kubernetes against a real API: nothing is forced, and an outage of the API is survived."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpuctl.core.errors import InvalidInput, Unreachable
from gpuctl.domain.kube_errors import Conflict, NotFound
from gpuctl.edges.kube import cluster as kube
from gpuctl.edges.kube import watch
from gpuctl.edges.kube.cancel import Stop
from tests.integration.nccl.kube.containers import with_times
from tests.rig.kube.kubelet import pod
from tests.rig.kube.plane import Plane, for_tests


@pytest.fixture(scope="module")
def cluster() -> Iterator[Plane]:
    yield from for_tests(controllers=False)


@pytest.fixture
def found(cluster: Plane) -> kube.Cluster:
    return kube.connect(files=[cluster.kubeconfig])


def settings(name: str, **data: str) -> dict[str, Any]:
    meta = {"name": name, "labels": {"of": "edge"}}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": data}


def restart(cluster: Plane) -> None:
    """The API server dies, and comes back a moment later."""
    server = next(each for each in cluster.processes if "kube-apiserver" in str(each.args))
    server.kill()
    server.wait()
    time.sleep(1)
    again = subprocess.Popen(
        server.args, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    cluster.processes[cluster.processes.index(server)] = again


def test_applying_twice_changes_nothing(found: kube.Cluster) -> None:
    first, second = (found.apply(settings("twice", a="1")) for _ in range(2))
    assert first["metadata"]["resourceVersion"] == second["metadata"]["resourceVersion"]


def test_a_dry_run_makes_nothing(found: kube.Cluster) -> None:
    assert found.apply(settings("dry", a="1"), dry_run=True)["data"] == {"a": "1"}
    assert found.get(found.kind("v1", "ConfigMap"), "dry") is None


def test_what_another_owns_is_not_taken_from_it(cluster: Plane, found: kube.Cluster) -> None:
    found.apply(settings("shared", a="1"))
    theirs = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: shared}\ndata: {a: theirs}\n"
    cluster.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=theirs)
    with pytest.raises(Conflict, match=r"others own \.data\.a \(kubectl"):
        found.apply(settings("shared", a="1"))
    assert cluster.kubectl("get", "configmap", "shared", "-o", "jsonpath={.data.a}") == "theirs"


def test_an_object_made_anew_under_the_same_name_is_not_deleted(found: kube.Cluster) -> None:
    old = found.apply(settings("again", a="1"))
    found.delete(old)
    new = found.apply(settings("again", a="2"))
    found.delete(old)
    assert found.get(found.kind("v1", "ConfigMap"), "again") == new


def test_a_kind_that_is_not_served_is_said(found: kube.Cluster) -> None:
    assert not found.serves("kubeflow.org/v2beta1", "MPIJob")
    with pytest.raises(NotFound, match="cannot find the kind MPIJob of kubeflow"):
        found.kind("kubeflow.org/v2beta1", "MPIJob")


def test_an_unknown_context_names_those_that_are_known(cluster: Plane) -> None:
    with pytest.raises(InvalidInput, match="no kubeconfig has it") as error:
        kube.connect("prod", files=[cluster.kubeconfig])
    assert error.value.hint == "known: test"


def test_a_cluster_that_never_answered_is_not_waited_for(cluster: Plane, tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text(cluster.kubeconfig.read_text().replace(f":{cluster.port}", ":9"))
    begun = time.monotonic()
    with pytest.raises(Unreachable, match=r"127\.0\.0\.1:9 does not answer"):
        kube.connect(files=[path]).kind("v1", "Pod")
    assert time.monotonic() - begun < 30  # one that did answer is waited for for a minute


def test_a_log_is_read_once_whatever_breaks(cluster: Plane, found: kube.Cluster) -> None:
    cluster.apply(pod("talks", **{"standin/log": with_times("one\ntwo\n")}))
    cluster.kubectl("wait", "--for=condition=Ready", "pod/talks", "--timeout=30s")
    heard: list[str] = []
    done = threading.Event()
    reading = threading.Thread(
        target=lambda: heard.extend(watch.logs(found, "talks", done.is_set, Stop())), daemon=True
    )
    reading.start()
    time.sleep(1)  # by then it has been read more than once
    more = {"metadata": {"annotations": {"standin/log": with_times("one\ntwo\nthree\n")}}}
    cluster.api("PATCH", "/api/v1/namespaces/default/pods/talks", more)
    restart(cluster)
    done.set()
    reading.join(120)
    assert heard == ["one", "two", "three"]


def test_a_watch_goes_on_after_the_api_was_away_and_misses_nothing(cluster: Plane, found: kube.Cluster) -> None:
    labels = {"of": "watched"}
    kind = found.kind("v1", "ConfigMap")
    for name in ("stays", "goes"):
        found.apply({**settings(name), "metadata": {"name": name, "labels": labels}})
    seen: list[list[str]] = []
    stop = Stop()
    watching = threading.Thread(
        target=lambda: seen.extend(sorted(now) for now in watch.watch(found, kind, labels, stop)), daemon=True
    )
    watching.start()
    restart(cluster)
    # Asked for while it is away: it is waited for.
    found.apply({**settings("comes"), "metadata": {"name": "comes", "labels": labels}})
    assert found.remove([kind], {"of": "nothing"}, 1) == []
    cluster.kubectl("delete", "configmap", "goes")
    stop_after(stop, 3)
    watching.join(60)
    assert not watching.is_alive()
    assert seen[-1] == ["comes", "stays"]


def stop_after(stop: Stop, seconds: float) -> None:
    time.sleep(seconds)
    stop.set()


def test_removing_waits_until_all_is_gone(cluster: Plane, found: kube.Cluster) -> None:
    cluster.apply(pod("leaves"))
    cluster.kubectl("wait", "--for=condition=Ready", "pod/leaves", "--timeout=30s")
    assert found.remove([found.kind("v1", "Pod")], {"app": "leaves"}, 20) == []
    assert found.get(found.kind("v1", "Pod"), "leaves") is None
