"""Every store keeps the promises of gpuctl/reservations/stores/base.py."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from gpuctl.edges.aws import Aws
from gpuctl.reservations.rules import disks
from gpuctl.reservations.rules.commands import Cancel, Command, Message, Submit, handle, receipt_key
from gpuctl.reservations.rules.decision import Change, Decision, Draft
from gpuctl.reservations.rules.disks import CreateDisk, DeleteDisk, RenameDisk
from gpuctl.reservations.rules.model import AuditEntry, Clock, Disk, Node, Receipt, Site, Slot, State, Usage
from gpuctl.reservations.rules.plan import plan
from gpuctl.reservations.rules.requests import Request
from gpuctl.reservations.stores.base import Conflict, Store
from gpuctl.reservations.stores.dynamodb import DynamoStore
from gpuctl.reservations.stores.memory import MemoryStore
from gpuctl.reservations.stores.sqlite import SqliteStore
from tests.rig.aws_endpoint import moto_endpoint
from tests.rig.reservations.aws_table import aws_login, new_table
from tests.rig.reservations.books import ADA, BOB, NOW
from tests.rig.reservations.world import ALL, World

NODES = [Node(f"gpu-{number}", "h100", (None,) * 8) for number in (1, 2)]
Factory = Callable[[], Store]


@pytest.fixture(scope="module")
def moto() -> Iterator[str]:
    with moto_endpoint() as url:
        yield url


@pytest.fixture
def endpoint(moto: str) -> Iterator[str]:
    with aws_login(moto):
        yield moto


@pytest.fixture(params=["memory", "sqlite", "dynamodb"])
def factory(request: pytest.FixtureRequest, tmp_path: Path) -> Factory:
    if request.param == "memory":
        return lambda: MemoryStore(Site(), NODES)
    if request.param == "dynamodb":
        table, aws = new_table(request.getfixturevalue("endpoint")), Aws()
        return lambda: DynamoStore(aws, table, Site(), NODES)
    return lambda: SqliteStore(tmp_path / "reservations.db", Site(), NODES)


@pytest.fixture
def store(factory: Factory) -> Store:
    return factory()


def submit(store: Store, key: str = "k", gpus: int = 8) -> Receipt:
    decision, answer = handle(store.load(), Message(Submit(Request(gpus, disk="data")), ADA, key), NOW, None)
    store.commit(decision)
    return answer


def start(store: Store) -> str:
    id_ = submit(store).reservation
    draft = Draft(store.load(), NOW + 1, "planner")
    plan(draft)
    store.commit(draft.decision())
    return id_


def test_what_is_committed_is_loaded(store: Store) -> None:
    id_ = start(store)
    book = store.load()
    assert book.reservations[id_].slots == (Slot("gpu-1", tuple(range(8))),)
    assert book.reservations[id_].state is State.PREPARING
    assert book.nodes["gpu-1"].allocated == (id_,) * 8
    assert book.disks == {"ada/data": Disk("ada/data", "ada", id_, version=2)}
    assert book.clock.at == NOW + 1


def test_a_disk_that_is_deleted_leaves_the_store_and_its_name_can_be_used_again(store: Store, factory: Factory) -> None:
    def send(command: Command, key: str) -> None:
        decision, answer = handle(store.load(), Message(command, ADA, key), NOW, None)
        assert answer.accepted, answer.message
        store.commit(decision)

    send(CreateDisk("data"), "k1")
    draft = Draft(store.load(), NOW, "disks")
    disks.report(draft, "ada/data", "ada/data", "")
    store.commit(draft.decision())
    stale = store.load()
    send(RenameDisk("data", "old"), "k2")
    assert list(store.load().disks) == ["ada/old"]
    with pytest.raises(Conflict):
        store.commit(handle(stale, Message(DeleteDisk("data"), ADA, "k3"), NOW, None)[0])
    send(CreateDisk("data"), "k4")
    assert {disk.volume_id for disk in store.load().disks.values()} == {"ada/data", "ada/data~2"}
    if not isinstance(store, MemoryStore):
        assert factory().load().disks == store.load().disks


def test_a_snapshot_is_not_changed_by_later_writes(store: Store) -> None:
    before = store.load()
    start(store)
    assert before.reservations == {}
    assert before.nodes["gpu-1"].free == tuple(range(8))


def test_a_stale_decision_writes_nothing_at_all(store: Store) -> None:
    stale = store.load()
    id_ = start(store)
    book, history = store.load(), store.history(None, 99)
    decision, _ = handle(stale, Message(Submit(Request(1)), BOB, "other"), NOW, None)
    with pytest.raises(Conflict):
        store.commit(decision)
    changes = (Change(replace(book.nodes["gpu-2"], fence=9, version=1), 0), Change(Usage("person:x", 1.0, 1, 5), 4))
    with pytest.raises(Conflict):
        store.commit(Decision(changes, (AuditEntry(NOW, "x", "y", id_, "z"),)))
    assert store.load() == book
    assert list(store.history(None, 99)) == list(history)
    assert store.receipt(receipt_key(BOB, "other")) is None


def test_a_new_row_does_not_replace_an_existing_one(store: Store) -> None:
    store.commit(Decision((Change(Disk("ada/x", "ada", version=1), 0),)))
    with pytest.raises(Conflict):
        store.commit(Decision((Change(Disk("ada/x", "bob", version=1), 0),)))
    assert store.load().disks["ada/x"].person == "ada"


def test_a_receipt_is_written_once_and_its_second_commit_changes_nothing(store: Store) -> None:
    answer = submit(store)
    assert store.receipt(answer.key) == answer
    book = store.load()
    clock = Change(Clock(NOW + 5, book.clock.version + 1), book.clock.version)
    with pytest.raises(Conflict):
        store.commit(Decision((clock,), (), answer))
    assert store.load().clock == book.clock


def test_old_receipts_are_forgotten(store: Store) -> None:
    answer = submit(store)
    assert store.forget_receipts(NOW) == 0
    assert store.forget_receipts(NOW + 1) == 1
    assert store.receipt(answer.key) is None


def test_what_is_over_leaves_the_book_and_stays_in_the_history(store: Store) -> None:
    id_ = submit(store).reservation
    decision, _ = handle(store.load(), Message(Cancel(id_), ADA, "c"), NOW + 5, None)
    store.commit(decision)
    assert id_ not in store.load().reservations
    assert store.reservation(id_) == store.finished("ada", 5)[0] == store.finished(None, 5)[0]
    assert store.finished("bob", 5) == []
    assert [entry.action for entry in store.history(id_, 5)] == ["cancel", "accept"]
    assert len(store.history(None, 1)) == 1
    assert store.reservation("unknown") is None


def test_a_history_goes_back_over_commits_without_entries(store: Store) -> None:
    entries = [AuditEntry(NOW, "x", "y", "r1", str(number)) for number in range(4)]
    store.commit(Decision((), tuple(entries[:3])))
    for version in range(1, 6):
        store.commit(Decision((Change(Usage("person:x", 1.0, NOW, version), version - 1),)))
    store.commit(Decision((), tuple(entries[3:])))
    assert list(store.history(None, 3)) == [entries[3], entries[2], entries[1]]
    assert list(store.history(None, 9)) == list(reversed(entries))


def test_a_second_instance_sees_the_first_ones_writes(factory: Factory) -> None:
    first, second = factory(), factory()
    if isinstance(first, MemoryStore):
        return
    second.load()
    id_ = start(first)
    assert second.load().reservations[id_] == first.load().reservations[id_]
    stale = first.load()
    decision, _ = handle(second.load(), Message(Cancel(id_), ADA, "c"), NOW + 5, None)
    second.commit(decision)
    decision, _ = handle(stale, Message(Submit(Request(1)), BOB, "b"), NOW + 6, None)
    with pytest.raises(Conflict):
        first.commit(decision)
    assert first.load().reservations[id_].state is State.ENDING


@pytest.mark.parametrize("seed", [1, 3])
def test_random_histories_hold_on_sqlite(tmp_path: Path, seed: int) -> None:
    def sqlite(site: Site, nodes: list[Node]) -> Store:
        return SqliteStore(tmp_path / "history.db", site, nodes)

    assert World(seed, ALL, sqlite).run(steps=15).states == World(seed, ALL).run(steps=15).states


@pytest.mark.parametrize("seed", [1, 3])
def test_random_histories_hold_on_dynamodb(endpoint: str, seed: int) -> None:
    def dynamodb(site: Site, nodes: list[Node]) -> Store:
        return DynamoStore(Aws(), new_table(endpoint), site, nodes)

    assert World(seed, ALL, dynamodb).run(steps=15).states == World(seed, ALL).run(steps=15).states
