"""Two hosts without any cluster, reached over ssh: isolation, gangs, a cable that is pulled, accounts that are missing.

Stand-ins: nvidia-smi (the rig's), and null devices for the GPUs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gpuctl.reservations.agent import NodeSession
from gpuctl.reservations.database import FileDatabase
from gpuctl.reservations.rules.model import HOUR, Caller, Limits, NodeState, Site
from gpuctl.reservations.serve import Fleet
from gpuctl.reservations.service import Service
from gpuctl.reservations.stores.sqlite import SqliteStore
from gpuctl.workflows import reservations_nodes
from gpuctl.workflows.reservations_nodes import FleetRequest
from tests.rig import Rig, TestHost
from tests.rig.gpu_user_trees import xml_with
from tests.rig.host import wait_until

ADA, BOB = Caller("ada", "lab"), Caller("bob", "lab")
START = 1_800_000_000


@pytest.fixture(scope="module")
def servers(rig: Rig) -> Iterator[list[TestHost]]:
    hosts = rig.up(["lab-1", "lab-2"], machine="p5")
    for host in hosts:
        host.standin("nvidia-smi")
        host.write("/var/lib/standins/nvidia-smi/q.xml", xml_with({}))
        for account in ("ada", "bob"):
            host.run("useradd", "--create-home", "--shell", "/bin/bash", account)
        for minor in range(8):
            host.run("mknod", "-m", "666", f"/dev/nvidia{minor}", "c", "1", "3")
    other = re.sub("GPU-([0-9a-f]{8})", lambda match: f"GPU-{match[1][::-1]}", xml_with({}))
    hosts[1].write("/var/lib/standins/nvidia-smi/q.xml", other)  # no two hosts have GPUs of one UUID
    yield hosts
    rig.down()


@pytest.fixture(scope="module")
def inventory(servers: list[TestHost], rig: Rig) -> str:
    """The user admin, who becomes root by sudo."""
    path = Path(rig.inventory(user="admin"))
    path.write_text(f"{path.read_text().rstrip()}\nansible_become=true\n")
    return str(path)


class Lab:
    """The service on a database and the two hosts, with a clock of the test's."""

    def __init__(self, state: Path, inventory: str) -> None:
        self.state, self.inventory, self.now = state, inventory, START
        self.notes: list[str] = []
        self._keys = 0
        self.start()

    def start(self) -> None:
        hosts = reservations_nodes.chosen(FleetRequest(self.inventory))
        self.fleet: Fleet = reservations_nodes.fleet(hosts, None, FileDatabase(self.state).stored(), self.notes.append)
        store = SqliteStore(self.state / "reservations.db", Site(Limits(gpus_per_person=16)), self.fleet.nodes)
        self.service = Service(store, self.fleet.agents, lambda: self.now)
        self.service.pass_once()

    def call(self, caller: Caller, do: str, **content: Any) -> dict[str, Any]:
        self._keys += 1
        answer = self.service.answer(caller, {"do": do, "key": f"key-{self._keys:04}", **content})
        assert "error" not in answer, answer
        row: dict[str, Any] = answer["reservation"]
        return row

    def reserve(self, caller: Caller, gpus: int) -> dict[str, Any]:
        return self.call(caller, "submit", request={"gpus": gpus, "length_s": HOUR})

    def cancel(self, caller: Caller, row: dict[str, Any]) -> dict[str, Any]:
        return self.call(caller, "cancel", command={"reservation": row["id"]})

    def row(self, id_: str) -> Any:
        return self.service.store.reservation(id_)

    def step(self, seconds: int = 10) -> None:
        self.now += seconds
        self.service.pass_once()

    def step_until(self, reached: Callable[[], bool]) -> None:
        """Passes of the service: one that meets a connection of before the cable was pulled learns nothing."""
        for _ in range(6):
            self.step()
            if reached():
                return
        pytest.fail(f"not after six passes; the service said: {self.notes}, {self.service.silence}")


@pytest.fixture
def lab(tmp_path: Path, servers: list[TestHost], inventory: str) -> Iterator[Lab]:
    for host in servers:
        host.run("rm", "-rf", "/var/lib/gpuctl/reservations")  # of the database of an earlier test
    lab = Lab(tmp_path, inventory)
    yield lab
    for row in lab.service.store.load().reservations.values():
        lab.cancel(Caller(row.person, admin=True), {"id": row.id})
    lab.service.store.close()  # type: ignore[attr-defined]


def opened(host: TestHost, account: str) -> list[int]:
    """GPUs that an account can open."""
    code = "for n in 0 1 2 3 4 5 6 7; do (exec 3<>/dev/nvidia$n) 2>/dev/null && echo $n; done; true"
    return [int(word) for word in host.run("su", account, "-c", code).stdout.split()]


def test_two_people_have_their_gpus_at_the_same_time_and_nobody_elses(lab: Lab, servers: list[TestHost]) -> None:
    host = servers[0]
    assert opened(host, "ada") == []
    first, second = lab.reserve(ADA, 4), lab.reserve(BOB, 4)
    [mine], [theirs] = first["slots"], second["slots"]
    assert mine["node"] == theirs["node"]
    host = servers[int(mine["node"][-1]) - 1]
    assert opened(host, "ada") == mine["gpus"]
    assert opened(host, "bob") == theirs["gpus"]
    assert not set(mine["gpus"]) & set(theirs["gpus"])
    uuids = next(node for node in lab.fleet.nodes if node.name == mine["node"]).uuids
    visible = host.run("su", "-", "ada", "-c", "echo $CUDA_VISIBLE_DEVICES").stdout.strip()
    assert visible == ",".join(uuids[gpu] for gpu in mine["gpus"])
    assert visible.startswith("GPU-")
    assert host.run("su", "-", "nosudo", "-c", "echo $CUDA_VISIBLE_DEVICES").stdout.strip() == ""
    assert first["logins"][0]["user"] == "ada"
    lab.cancel(ADA, first)
    assert opened(host, "ada") == []
    assert host.run("su", "-", "ada", "-c", "echo $CUDA_VISIBLE_DEVICES").stdout.strip() == ""
    assert opened(host, "bob") == theirs["gpus"]
    lab.cancel(BOB, second)
    assert not host.exists("/etc/profile.d/gpuctl-reservations.sh")


def test_an_added_person_has_the_gpus_on_each_server_until_the_session_ends(lab: Lab, servers: list[TestHost]) -> None:
    servers[1].run("userdel", "bob")
    row = lab.call(ADA, "submit", request={"gpus": 16, "length_s": HOUR, "users": "bob"})
    lab.step()
    assert opened(servers[0], "bob") == list(range(8))
    assert servers[0].run("su", "-", "bob", "-c", "echo $NNODES").stdout.strip() == "2"
    assert lab.row(row["id"]).access_reason == "lab-2: there is no account bob"
    assert lab.row(row["id"]).without_access == ("lab-2",)
    servers[1].run("useradd", "--create-home", "--shell", "/bin/bash", "bob")
    lab.step()
    assert (opened(servers[1], "bob"), lab.row(row["id"]).without_access) == (list(range(8)), ())
    lab.cancel(ADA, row)
    assert [opened(host, "bob") for host in servers] == [[], []]


def test_connections_of_real_sshd_are_counted_by_account(lab: Lab) -> None:
    rows = [NodeSession("logged in", "admin", (0,)), NodeSession("away", "ada", (1,))]  # this visit is one of admin
    uses = lab.fleet.agents["lab-1"].use(rows)
    assert (uses["logged in"].connections or 0) >= 1
    assert uses["away"].connections == 0


TERMINAL = """import os, select
leader, follower = os.openpty()
open("/home/ada/ready", "w").close()
select.select([leader], [], [], 60)
open("/home/ada/shown", "wb").write(os.read(leader, 999))
"""


def test_warnings_reach_terminals_of_the_node_before_access_ends(lab: Lab, servers: list[TestHost]) -> None:
    row = lab.reserve(ADA, 8)
    host = servers[int(row["slots"][0]["node"][-1]) - 1]
    host.write("/opt/terminal.py", TERMINAL)
    host.run("sh", "-c", "su ada -c 'python3 /opt/terminal.py' > /dev/null 2>&1 &")
    wait_until(lambda: host.exists("/home/ada/ready"), 20, "no terminal")
    lab.step(HOUR - 5 * 60)
    wait_until(lambda: host.exists("/home/ada/shown"), 20, "no warning")
    assert f"*** Reservation {row['id']} ends in 5 min: its time is over" in host.read("/home/ada/shown")
    assert "ends in 5 min" in host.read("/run/gpuctl-reservations/ada.warning")
    assert opened(host, "ada") == list(range(8))
    lab.step(5 * 60 + Limits().grace_s)
    assert lab.row(row["id"]).state == "expired"
    assert opened(host, "ada") == []


def test_a_gang_is_on_all_nodes_or_on_none(lab: Lab, servers: list[TestHost]) -> None:
    row = lab.reserve(ADA, 16)
    assert (row["state"], [slot["node"] for slot in row["slots"]]) == ("active", ["lab-1", "lab-2"])
    assert [opened(host, "ada") for host in servers] == [list(range(8))] * 2
    ranks = [host.run("su", "-", "ada", "-c", "echo $NODE_RANK/$NNODES@$MASTER_ADDR").stdout for host in servers]
    assert ranks == [f"{rank}/2@{servers[0].ip}\n" for rank in (0, 1)]
    lab.cancel(ADA, row)
    servers[1].run("usermod", "--login", "adeline", "ada")
    try:
        failed = lab.reserve(ADA, 16)
        assert failed["state"] == "failed"
        assert "lab-2: there is no account ada" in failed["reason"]
        assert opened(servers[0], "ada") == []
    finally:
        servers[1].run("usermod", "--login", "ada", "adeline")


def test_a_host_that_cannot_be_reached_at_the_end_is_given_on_only_after_access_was_withdrawn(
    lab: Lab, servers: list[TestHost]
) -> None:
    first = lab.reserve(ADA, 16)
    host = servers[1]
    host.pause()
    try:
        lab.step()
        lab.cancel(ADA, first)
        waiting = lab.reserve(BOB, 16)
        lab.step()
        lab.step()
        state = {node["name"]: node["state"] for node in lab.service.answer(ADA, {"do": "state"})["nodes"]}
        assert state == {"lab-1": "ready", "lab-2": "unknown"}
        assert lab.row(waiting["id"]).state == "queued"
        assert opened(host, "ada") == list(range(8))  # no cable, no order: so nobody else gets them
    finally:
        host.resume()
    lab.step_until(lambda: lab.row(waiting["id"]).state == "active")
    assert lab.row(first["id"]).state == "cancelled"
    assert opened(host, "ada") == []
    assert opened(host, "bob") == list(range(8))


def test_a_node_that_is_lost_and_back_keeps_sessions_in_time(lab: Lab, servers: list[TestHost]) -> None:
    row = lab.reserve(ADA, 16)
    servers[1].pause()
    try:
        lab.step()
        lab.step(Limits().node_lost_s)
        assert lab.row(row["id"]).state == "active"
        assert lab.service.store.load().nodes["lab-2"].state is NodeState.LOST
        lab.start()  # the service starts again while the node is away
        assert "its GPUs are unknown" in lab.notes[-1]
    finally:
        servers[1].resume()
    lab.step_until(lambda: lab.service.store.load().nodes["lab-2"].state is NodeState.READY)
    assert [opened(host, "ada") for host in servers] == [list(range(8))] * 2
    lab.cancel(ADA, row)
    assert opened(servers[1], "ada") == []


def test_a_node_obeys_one_service_only(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> None:
    other = Lab(tmp_path_factory.mktemp("other"), lab.inventory)
    assert all("belongs to the reservations of" in reason for reason in other.service.silence.values())
    assert len(other.service.silence) == 2
