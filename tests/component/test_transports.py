"""Every transport keeps the promises of tests/rig/transport_promises.py; here those that need no host.

ssh to real hosts: tests/integration/test_transports.py. Exec into real pods: tests/integration/nccl/environment.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from gpuctl.edges.ssh import Login
from gpuctl.nccl.runners.kube.exec_transport import Pod, PodTransport
from gpuctl.remote.transport import OverSsh
from tests.rig.kube import standin_exec
from tests.rig.transport_promises import PROMISES, REMOTE_PROMISES, Reached

Promise = Callable[[Reached], None]
PODS = {pod.label: pod for pod in (Pod(f"lab-{n}", f"gpu-{n}", f"lab-{n}.lab.team.svc", f"uid-{n}") for n in (0, 1))}
FIRST, GONE = PODS


@pytest.fixture(params=standin_exec.PROTOCOLS)
def pods(request: pytest.FixtureRequest) -> Iterator[Reached]:
    live = [{"metadata": {"name": "lab-0", "uid": "uid-0"}, "spec": {"nodeName": "gpu-0"}}]
    with standin_exec.serve(live, request.param) as server:
        yield Reached(PodTransport(server.cluster(), PODS, "ml", {}), FIRST, GONE, lambda _: server.cut())


@pytest.mark.parametrize("promise", PROMISES, ids=lambda promise: promise.__name__)
def test_this_machine(promise: Promise) -> None:
    promise(Reached(OverSsh({"here": Login("localhost", local=True)}), "here"))


@pytest.mark.parametrize("promise", REMOTE_PROMISES, ids=lambda promise: promise.__name__)
def test_exec_into_pods(promise: Promise, pods: Reached) -> None:
    promise(pods)
