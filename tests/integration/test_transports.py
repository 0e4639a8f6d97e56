"""ssh to a real host keeps the promises of every transport (tests/rig/transport_promises.py)."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from gpuctl.edges.ssh import Login
from gpuctl.remote.transport import OverSsh
from tests.rig import Rig, TestHost, parts
from tests.rig.needs import HOSTS, need
from tests.rig.transport_promises import REMOTE_PROMISES, Reached

SESSION = "^sshd: root@notty"


@pytest.fixture(scope="module")
def reached() -> Iterator[Reached]:
    need(parts.missing(), HOSTS)
    with Rig() as rig:
        host, paused = rig.up(["reached", "paused"])
        paused.pause()
        transport = OverSsh({host.name: _login(rig, host) for host in (host, paused)})
        yield Reached(transport, host.name, paused.name, lambda _: host.run("pkill", "-KILL", "-f", SESSION))


def _login(rig: Rig, host: TestHost) -> Login:
    known = ("-o", f"UserKnownHostsFile={rig.state}/known_hosts", "-o", "StrictHostKeyChecking=yes")
    return Login(host.ip, user="root", key=f"{rig.state}/id_ed25519", args=known)


@pytest.mark.parametrize("promise", REMOTE_PROMISES, ids=lambda promise: promise.__name__)
def test_ssh_to_a_host(promise: Callable[[Reached], None], reached: Reached) -> None:
    promise(reached)
