"""Every back end's node keeps the promises of gpuctl/reservations/agent.py, and the random histories hold on it."""

from __future__ import annotations

import os
import pwd
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from gpuctl.engine import gpu_sessions, gpuhost_host
from gpuctl.reservations.agent import InUse, NotObeyed, PodValues, VisitedNode
from gpuctl.reservations.rules.decision import Decision
from gpuctl.reservations.rules.model import Caller, Node, Site, State
from gpuctl.reservations.rules.reconcile import Session
from gpuctl.reservations.rules.reports import Order, OrderKind
from gpuctl.reservations.service import Service
from gpuctl.reservations.stores.sqlite import SqliteStore
from tests.rig.reservations.node_agents import ACCOUNT, BACK_ENDS, NodeFactory, RealAgent, access, folder
from tests.rig.reservations.world import ALL, SLOW, Faults, World

ME = pwd.getpwuid(os.getuid()).pw_name
UID = pwd.getpwnam(ACCOUNT).pw_uid
ADA = Caller(ACCOUNT, "vision")
GAMES = pwd.getpwnam("games").pw_uid
SESSIONS = "var/lib/gpuctl/reservations/sessions.json"


@pytest.fixture(params=BACK_ENDS)
def factory(request: pytest.FixtureRequest) -> NodeFactory:
    return BACK_ENDS[request.param]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return folder(tmp_path / "root", 4)


@pytest.fixture
def node(factory: NodeFactory, root: Path) -> Callable[[], VisitedNode]:
    """Starts the node, and starts it again."""
    return lambda: factory(root, 4)


@pytest.fixture
def games_is_a_person(monkeypatch: pytest.MonkeyPatch) -> None:
    """This machine has no accounts of people: one of a daemon stands in for them."""
    monkeypatch.setattr(gpu_sessions, "is_addable", lambda uid: uid == GAMES)


def order(kind: OrderKind, fence: int, id_: str = "r1", gpus: tuple[int, ...] = (0, 1)) -> Order:
    return Order(kind, "gpu-1", fence, id_, 1, gpus)


def test_without_a_reservation_nobody_but_root_has_a_gpu(node: Callable[[], VisitedNode], root: Path) -> None:
    node().observe(0)
    assert access(root, 4) == [[], [], [], []]
    assert all((root / f"dev/nvidia{index}").stat().st_mode & 0o007 == 0 for index in range(4))


def test_the_group_of_the_device_files_has_no_access() -> None:
    entries = {tag: rights for tag, rights, _ in struct.iter_unpack("<HHI", gpu_sessions.acl([1000])[4:])}
    assert entries == {0x01: 6, 0x02: 6, 0x04: 0, 0x10: 6, 0x20: 0}


def test_a_session_gives_gpus_and_variables_to_its_account_and_takes_them_back(
    node: Callable[[], VisitedNode], root: Path
) -> None:
    agent, script = node(), root / f"run/gpuctl-reservations/{ACCOUNT}.sh"
    agent.obey(order(OrderKind.PREPARE, 1), ACCOUNT, {"CUDA_VISIBLE_DEVICES": "GPU-a,GPU-b", "NOTE": "it's"})
    assert access(root, 4) == [[UID], [UID], [], []]
    assert agent.observe(1).sessions == [Session("r1", 1, (0, 1))]
    shell = subprocess.run(
        ["sh", "-c", '. "$0"; echo "$CUDA_VISIBLE_DEVICES $NOTE"', script], capture_output=True, text=True, check=True
    )
    assert shell.stdout == "GPU-a,GPU-b it's\n"
    agent.obey(order(OrderKind.PREPARE, 2, "r2", (3,)), ACCOUNT, {"CUDA_VISIBLE_DEVICES": "GPU-d", "NOTE": "2"})
    assert "CUDA_VISIBLE_DEVICES=GPU-a,GPU-b,GPU-d" in script.read_text()
    assert "NOTE" not in script.read_text()  # of which of the two
    agent.obey(order(OrderKind.CLEAR, 3), ACCOUNT)
    assert access(root, 4) == [[], [], [], [UID]]
    agent.obey(order(OrderKind.CLEAN_NODE, 4, "", ()), "")
    assert access(root, 4) == [[], [], [], []]
    assert agent.observe(4).sessions == []
    assert not script.exists()
    assert not (root / "etc/profile.d/gpuctl-reservations.sh").exists()


@contextmanager
def opened(device: str, uid: int) -> Iterator[subprocess.Popen[str]]:
    """A program of an account that has a device open."""
    code = f"import os, sys; gpu = open({device!r}); os.setuid({uid}); print('open', flush=True); sys.stdin.read()"
    command = [sys.executable, "-SIc", code]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdin is not None
        assert program.stdout is not None
        assert program.stdout.readline() == "open\n"
        yield program
        program.stdin.close()


def give(fence: int, *people: str, id_: str = "r1", attempt: int = 1) -> Order:
    return Order(OrderKind.ACCESS, "gpu-1", fence, id_, attempt, (0, 1), people=people)


@pytest.mark.usefixtures("games_is_a_person")
def test_added_people_have_the_gpus_and_variables_until_the_session_ends(
    node: Callable[[], VisitedNode], root: Path
) -> None:
    agent = node()
    agent.obey(order(OrderKind.PREPARE, 1), ACCOUNT, {"CUDA_VISIBLE_DEVICES": "GPU-a,GPU-b"})
    for fence in (1, 1):  # an order without an answer is given again
        agent.obey(give(fence, "games"), ACCOUNT)
    assert access(root, 4) == [sorted([UID, GAMES])] * 2 + [[], []]
    script = root / "run/gpuctl-reservations/games.sh"
    assert "GPU-a,GPU-b" in script.read_text()
    agent.obey(order(OrderKind.PREPARE, 1), ACCOUNT, {"CUDA_VISIBLE_DEVICES": "GPU-a,GPU-b"})  # late, given again
    assert access(root, 4)[0] == sorted([UID, GAMES])
    assert node().observe(1).sessions == [Session("r1", 1, (0, 1))]
    agent.obey(give(2), ACCOUNT)
    assert (access(root, 4)[0], script.exists()) == ([UID], False)
    agent.obey(give(3, "games"), ACCOUNT)
    agent.obey(order(OrderKind.CLEAR, 4), ACCOUNT)
    assert (access(root, 4), script.exists()) == ([[], [], [], []], False)


@pytest.mark.usefixtures("games_is_a_person")
def test_people_without_an_account_are_named_and_the_others_get_access(
    node: Callable[[], VisitedNode], root: Path
) -> None:
    agent = node()
    agent.obey(order(OrderKind.PREPARE, 1), ACCOUNT)
    with pytest.raises(NotObeyed, match="there is no account 4242"):
        agent.obey(give(1, "4242", "games"), ACCOUNT)
    assert access(root, 4)[0] == sorted([UID, GAMES])


@pytest.mark.parametrize("person", ["root", "games", "nobody"])
def test_root_and_daemons_are_not_added_so_that_their_programs_go_on(
    node: Callable[[], VisitedNode], root: Path, person: str
) -> None:
    agent, device = node(), str(root / "dev/nvidia1")
    uid = pwd.getpwnam(person).pw_uid
    agent.obey(order(OrderKind.PREPARE, 1), ACCOUNT)
    with pytest.raises(NotObeyed, match=f"no account {person} of a person: it is one of root or of a daemon"):
        agent.obey(give(1, person), ACCOUNT)
    assert access(root, 4)[0] == [UID]
    with opened(device, uid) as program:
        agent.obey(order(OrderKind.CLEAR, 2), ACCOUNT)
        assert program.poll() is None


@pytest.mark.usefixtures("games_is_a_person")
def test_an_added_person_has_the_variables_and_programs_of_their_sessions_as_before(
    node: Callable[[], VisitedNode], root: Path
) -> None:
    agent, script = node(), root / "run/gpuctl-reservations/games.sh"
    agent.obey(order(OrderKind.PREPARE, 1, "r2", (3,)), "games", {"CUDA_VISIBLE_DEVICES": "GPU-d", "NODE_RANK": "1"})
    before = script.read_text()
    agent.obey(order(OrderKind.PREPARE, 1), ACCOUNT, {"CUDA_VISIBLE_DEVICES": "GPU-a,GPU-b"})
    agent.obey(give(1, "games"), ACCOUNT)
    assert access(root, 4)[0] == sorted([UID, GAMES])
    assert script.read_text() == before
    with opened(str(root / "dev/nvidia3"), GAMES) as program:
        agent.obey(order(OrderKind.CLEAR, 2), ACCOUNT)
        assert program.poll() is None
    assert (access(root, 4)[3], script.read_text()) == ([GAMES], before)


def test_a_session_that_does_not_exist_is_given_to_nobody(node: Callable[[], VisitedNode], root: Path) -> None:
    agent = node()
    agent.obey(order(OrderKind.PREPARE, 1), ACCOUNT)
    for wrong in (give(1, "games", id_="r2"), give(1, "games", attempt=2)):
        with pytest.raises(NotObeyed, match="it has no session"):
            agent.obey(wrong, ACCOUNT)
    assert access(root, 4)[0] == [UID]


@pytest.mark.usefixtures("games_is_a_person")
@pytest.mark.parametrize("last", [order(OrderKind.CLEAR, 2), give(2)])
def test_a_program_of_an_added_person_ends_with_the_access(
    node: Callable[[], VisitedNode], root: Path, last: Order
) -> None:
    agent, device = node(), str(root / "dev/nvidia1")
    agent.obey(order(OrderKind.PREPARE, 1), ACCOUNT)
    agent.obey(give(1, "games"), ACCOUNT)
    code = f"import os, time; gpu = open({device!r}); os.setuid({GAMES}); print('open', flush=True); time.sleep(10)"
    with subprocess.Popen([sys.executable, "-SIc", code], stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == "open\n"
        assert agent.observe(1).open_by == ()
        agent.obey(last, ACCOUNT)
        assert program.wait(5) in (-15, -9)


def test_an_old_order_is_refused(node: Callable[[], VisitedNode], root: Path) -> None:
    agent = node()
    agent.obey(order(OrderKind.CLEAR, 5), ME)
    with pytest.raises(NotObeyed, match="order 4 is older than 5"):
        agent.obey(order(OrderKind.PREPARE, 4), ME)
    with pytest.raises(NotObeyed):
        agent.observe(4)
    assert access(root, 4) == [[], [], [], []]


def test_a_restart_keeps_sessions_and_the_fence(node: Callable[[], VisitedNode]) -> None:
    node().obey(order(OrderKind.PREPARE, 7), ACCOUNT)
    again = node()
    assert again.observe(7).sessions == [Session("r1", 1, (0, 1))]
    with pytest.raises(NotObeyed):
        again.obey(order(OrderKind.CLEAR, 6), ACCOUNT)


def test_gpus_of_a_session_are_given_to_nobody_else(node: Callable[[], VisitedNode], root: Path) -> None:
    agent = node()
    agent.obey(order(OrderKind.PREPARE, 1), ACCOUNT)
    with pytest.raises(NotObeyed, match="session r1 still has /dev/nvidia1"):
        agent.obey(order(OrderKind.PREPARE, 2, "r2", (1, 2)), "games")
    assert access(root, 4) == [[UID], [UID], [], []]


def test_a_node_obeys_one_service(factory: NodeFactory, root: Path) -> None:
    factory(root, 4).observe(0)
    with pytest.raises(NotObeyed, match="belongs to the reservations of desk:/state"):
        factory(root, 4, "laptop:/state").obey(order(OrderKind.PREPARE, 9), ACCOUNT)
    assert access(root, 4) == [[], [], [], []]


def test_a_gpu_that_is_missing_makes_the_node_unknown(node: Callable[[], VisitedNode], root: Path) -> None:
    agent = node()
    (root / "dev/nvidia2").unlink()
    with pytest.raises(NotObeyed, match="it has to have 4 GPUs, and the device files are: 0, 1, 3"):
        agent.observe(0)


def test_a_damaged_file_of_sessions_stops_the_node(node: Callable[[], VisitedNode], root: Path) -> None:
    agent = node()
    agent.obey(order(OrderKind.PREPARE, 1), ACCOUNT)
    (root / SESSIONS).write_text("{")
    with pytest.raises(NotObeyed, match="cannot be read"):
        agent.obey(order(OrderKind.CLEAR, 2), ACCOUNT)


def test_device_files_that_the_driver_made_again_are_restricted_again(
    node: Callable[[], VisitedNode], root: Path
) -> None:
    agent = node()
    agent.obey(order(OrderKind.PREPARE, 1), ACCOUNT)
    (root / "dev/nvidia0").unlink()
    (root / "dev/nvidia0").touch(mode=0o666)
    agent.observe(1)
    assert access(root, 4)[0] == [UID]
    assert (root / "dev/nvidia0").stat().st_mode & 0o007 == 0


def test_a_gpu_that_a_program_still_has_open_is_given_to_nobody_else(
    node: Callable[[], VisitedNode], root: Path
) -> None:
    agent = node()
    agent.obey(order(OrderKind.PREPARE, 1), ACCOUNT)
    device = str(root / "dev/nvidia1")
    code = f"import os, time; gpu = open({device!r}); os.setuid(41234); print('open', flush=True); time.sleep(10)"
    with subprocess.Popen([sys.executable, "-SIc", code], stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == "open\n"
        (root / SESSIONS).unlink()
        wrong = f"process {program.pid} of uid 41234 has /dev/nvidia1 open without a session"
        assert node().observe(2).open_by == (wrong,)
        with pytest.raises(InUse, match=wrong):
            node().obey(order(OrderKind.PREPARE, 3, "r2"), ACCOUNT)
        node().obey(order(OrderKind.PREPARE, 4, "r3", (0,)), ACCOUNT)
        program.kill()
    assert node().observe(5).open_by == ()
    node().obey(order(OrderKind.PREPARE, 6, "r2", (1,)), ACCOUNT)


def test_programs_of_root_and_of_daemons_only_watch_gpus(node: Callable[[], VisitedNode], root: Path) -> None:
    with (root / "dev/nvidia1").open():
        assert node().observe(0).open_by == ()
    assert [gpu_sessions._is_person(uid) for uid in (0, UID, 999_999)] == [False, False, True]


def test_who_has_a_gpu_open_is_unknown_if_programs_are_hidden(
    node: Callable[[], VisitedNode], monkeypatch: pytest.MonkeyPatch
) -> None:
    def hidden(process: str) -> list[str]:
        raise PermissionError(13, "Permission denied", process)

    monkeypatch.setattr(gpu_sessions, "_open_files", hidden)
    monkeypatch.setattr(gpu_sessions, "_is_person", lambda uid: True)
    with pytest.raises(OSError, match="Permission denied"):
        node().observe(0)


DEEP = """\
import os, sys, time
for _ in range(20):
    os.mkdir("d" * 250)
    os.chdir("d" * 250)
deep, gpu = open("deep", "w"), open(sys.argv[1])
os.setuid(int(sys.argv[2]))
print("open", flush=True)
time.sleep(10)
"""


@pytest.mark.parametrize("with_session", [True, False])
def test_a_program_with_a_file_deeper_than_a_path_can_be_hides_no_gpu(
    node: Callable[[], VisitedNode], root: Path, tmp_path: Path, with_session: bool
) -> None:
    agent, device, uid = node(), root / "dev/nvidia1", UID if with_session else 41234
    if with_session:
        agent.obey(order(OrderKind.PREPARE, 1), ACCOUNT)
    command = [sys.executable, "-SIc", DEEP, str(device), str(uid)]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == "open\n"
        if with_session:
            agent.obey(order(OrderKind.CLEAR, 2), ACCOUNT)
            assert program.wait(5) in (-15, -9)
        else:
            assert f"process {program.pid} of uid 41234" in agent.observe(2).open_by[0]
            program.kill()


def test_a_session_is_not_cleared_while_files_of_a_program_are_hidden(
    node: Callable[[], VisitedNode], monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = node()
    agent.obey(order(OrderKind.PREPARE, 1), ME)

    def hidden(process: str) -> list[str]:
        raise PermissionError(13, "Permission denied", process)

    monkeypatch.setattr(gpu_sessions, "_open_files", hidden)
    with pytest.raises(OSError, match="Permission denied"):
        agent.obey(order(OrderKind.CLEAR, 2), ME)
    monkeypatch.undo()
    assert agent.observe(2).sessions == [Session("r1", 1, (0, 1))]


@pytest.mark.parametrize("ignores", ["", "signal.signal(signal.SIGTERM, signal.SIG_IGN); "])
def test_a_program_that_has_a_gpu_open_ends_with_its_session(
    node: Callable[[], VisitedNode], root: Path, ignores: str
) -> None:
    agent = node()
    agent.obey(order(OrderKind.PREPARE, 1), ACCOUNT)
    device = str(root / "dev/nvidia1")
    code = f"import os, signal, time; {ignores}gpu = open({device!r}); os.setuid({UID}); "
    code += "print('open', flush=True); time.sleep(10)"
    with subprocess.Popen([sys.executable, "-SIc", code], stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == "open\n"
        if not ignores:  # the driver was loaded again
            Path(device).unlink()
            Path(device).touch()
        agent.obey(order(OrderKind.CLEAR, 2), ACCOUNT)
        assert program.wait(5) in (-15, -9)


def test_a_session_that_was_being_cleared_never_gets_access_again(
    node: Callable[[], VisitedNode], root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = node()
    agent.obey(order(OrderKind.PREPARE, 1), ACCOUNT)

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(gpu_sessions, "_end_processes", killed)
    with pytest.raises(KeyboardInterrupt):
        agent.obey(order(OrderKind.CLEAR, 2), ACCOUNT)
    assert node().observe(2).sessions == [Session("r1", 1, (0, 1))]  # not cleared yet, so its GPUs are not free
    assert access(root, 4) == [[], [], [], []]


def test_an_account_that_does_not_exist_gets_nothing(node: Callable[[], VisitedNode], root: Path) -> None:
    agent = node()
    with pytest.raises(NotObeyed, match="there is no account 4242"):
        agent.obey(order(OrderKind.PREPARE, 1), "4242")
    agent.observe(1)
    assert access(root, 4) == [[], [], [], []]


def test_a_warning_reaches_terminals_of_its_owner_and_a_file(node: Callable[[], VisitedNode], root: Path) -> None:
    leader, follower = os.openpty()
    (root / "dev/pts").rmdir()
    (root / "dev/pts").symlink_to("/dev/pts")  # the kernel's terminals; the file stays in the folder of the test
    delivery = node().warn(ME, "ends in 5 min")
    assert delivery.terminals >= 1
    assert b"*** ends in 5 min ***" in os.read(leader, 1000)
    assert (root / f"run/gpuctl-reservations/{ME}.warning").read_text() == "ends in 5 min\n"
    os.close(leader)
    os.close(follower)


def test_a_warning_that_a_terminal_has_shown_is_delivered_though_its_file_cannot_be_written(
    node: Callable[[], VisitedNode], root: Path
) -> None:
    (root / f"run/gpuctl-reservations/{ME}.warning").mkdir(parents=True)
    with pytest.raises(OSError, match=ME):
        node().warn(ME, "ends in 5 min")  # on no terminal
    leader, follower = os.openpty()
    (root / "dev/pts").rmdir()
    (root / "dev/pts").symlink_to("/dev/pts")
    assert node().warn(ME, "ends in 5 min").terminals >= 1
    assert b"*** ends in 5 min ***" in os.read(leader, 1000)
    os.close(leader)
    os.close(follower)


class KilledHost(gpuhost_host.Host):
    """A host on which the program is killed before or after its n-th change."""

    steps = 10**6

    def changing(self, what: str):  # type: ignore[no-untyped-def]
        type(self).steps -= 1
        if type(self).steps < 0:
            raise KeyboardInterrupt(what)
        return super().changing(what)


@pytest.mark.parametrize("kill", range(1, 9))
def test_a_visit_that_is_killed_at_any_change_is_completed_by_the_next(root: Path, kill: int) -> None:
    request = {"service": "s", "gpus": 4, "end_s": 0.1, "person": ACCOUNT, "variables": {"CUDA_VISIBLE_DEVICES": "0"}}
    prepare = {**request, "do": "prepare", "fence": 1, "session": "r1", "attempt": 1, "devices": [0]}
    for last in (prepare, {**request, "do": "clear", "fence": 2, "session": "r1"}):
        KilledHost.steps = kill
        try:
            gpu_sessions.run(KilledHost(root), last)
        except KeyboardInterrupt:
            assert access(root, 4)[1:] == [[], [], []]
        assert gpu_sessions.run(gpuhost_host.Host(root), last)["refused"] == ""
        assert access(root, 4)[0] == ([UID] if last is prepare else [])
    assert not (root / "etc/profile.d/gpuctl-reservations.sh").exists()


class Killed(BaseException):
    """The service is killed at this point."""


class Deadly:
    """Services on one database and one node; the n-th write or order is the last act of a service."""

    def __init__(self, agent: VisitedNode, database: Path, last: int) -> None:
        self.agent, self.database, self.left = agent, database, last
        self.obey = agent.obey
        agent.obey = self.obey_and_die  # type: ignore[method-assign]
        self.service = self.start()

    def start(self) -> Service:
        store = SqliteStore(self.database, Site(), [Node("gpu-1", "h100", (None,) * 4)])
        self.commit = store.commit
        store.commit = self.commit_and_die  # type: ignore[method-assign]
        return Service(store, {"gpu-1": self.agent}, lambda: 1_800_000_000)

    def obey_and_die(
        self, order: Order, person: str, variables: Mapping[str, str] | None = None, pod: PodValues | None = None
    ) -> None:
        self.obey(order, person, variables, pod)
        self.step()

    def commit_and_die(self, decision: Decision) -> None:
        self.commit(decision)
        self.step()

    def step(self) -> None:
        self.left -= 1
        if self.left == -1:
            raise Killed

    def answer(self, call: dict[str, Any]) -> dict[str, Any]:
        """The answer to a call, which is sent again to the next service if one is killed."""
        try:
            return self.service.answer(ADA, call)
        except Killed:
            self.service = self.start()
            return self.service.answer(ADA, call)


@pytest.mark.parametrize("last", range(7))
def test_a_service_that_is_killed_between_any_two_steps_goes_on_where_it_was(
    factory: NodeFactory, root: Path, tmp_path: Path, last: int
) -> None:
    """The next service neither doubles nor leaves anything."""
    deadly = Deadly(factory(root, 4), tmp_path / "r.db", last)
    row = deadly.answer({"do": "submit", "key": "key-0001", "request": {"gpus": 2}})["reservation"]
    deadly.service.pass_once()
    assert [len(uids) for uids in access(root, 4)] == [1, 1, 0, 0]
    deadly.answer({"do": "cancel", "key": "key-0002", "command": {"reservation": row["id"]}})
    deadly.service.pass_once()
    assert access(root, 4) == [[], [], [], []]
    assert [row.state for row in deadly.service.store.finished(None, 9)] == [State.CANCELLED]
    assert deadly.left < 0, "nothing was killed"


@pytest.mark.parametrize("faults", [ALL, SLOW], ids=["fast", "slow"])
def test_random_histories_hold_on_real_nodes(factory: NodeFactory, tmp_path: Path, faults: Faults) -> None:
    world = World(3, faults, agent=lambda node: RealAgent(node, factory, tmp_path)).run(steps=40)
    assert len(world.states) > 0
