"""Disks through the service: steps on volumes, what a person sees of them, and an agent that fails."""

from __future__ import annotations

from typing import Any

from gpuctl.reservations.agent import NotObeyed
from gpuctl.reservations.demo import SimulatedNode
from gpuctl.reservations.disk_work import SOON_S, DiskWork
from gpuctl.reservations.rules.model import HOUR, Caller, Node, Site
from gpuctl.reservations.service import Service
from gpuctl.reservations.stores.memory import MemoryStore
from tests.rig.reservations.standin_volumes import StandinVolumes

ADA, BOB = Caller("ada", "vision"), Caller("bob", "speech")
NOW = 1_700_000_000


class Lab:
    def __init__(self) -> None:
        self.volumes = StandinVolumes()
        self.store = MemoryStore(Site(), [Node("gpu-1", "h100", (None,) * 8)])
        agents = {"gpu-1": SimulatedNode("gpu-1")}
        self.service = Service(self.store, agents, lambda: NOW, disk_agent=self.volumes)
        self._keys = 0

    def send(self, verb: str, caller: Caller = ADA, **command: str) -> dict[str, Any]:
        self._keys += 1
        return self.service.answer(caller, {"do": verb, "key": f"key-{self._keys:05}", "command": command})

    def list(self, caller: Caller = ADA) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = self.service.answer(caller, {"do": "disks"})["disks"]
        return rows


def test_a_disk_is_made_before_the_answer_and_its_size_known_after_a_pass() -> None:
    lab = Lab()
    answer = lab.send("createdisk", disk="data")
    assert answer["message"] == "disk data is being made"
    assert [(row["name"], row["state"]) for row in answer["disks"]] == [("data", "ready")]
    lab.service.pass_once()
    [row] = lab.list()
    assert (row["size"], row["claim"]) == ("1Gi", "claim-of-ada/data")
    assert lab.list(BOB) == []


def test_a_copy_waits_for_the_cluster_and_says_for_what() -> None:
    lab = Lab()
    lab.send("createdisk", disk="data")
    lab.volumes.slow = True
    lab.send("clonedisk", disk="data", copy="copy")
    assert lab.service.disks.waiting
    copy = next(row for row in lab.list() if row["name"] == "copy")
    assert (copy["state"], copy["reason"]) == ("being copied", "the snapshot is being taken")
    lab.volumes.slow = False
    lab.service.pass_once()
    assert {row["state"] for row in lab.list()} == {"ready"}


def test_a_step_that_does_not_end_does_not_make_the_service_busy_for_ever() -> None:
    lab, now = Lab(), [0.0]
    lab.send("createdisk", disk="data")
    lab.volumes.slow = True
    work = DiskWork(lab.volumes, lab.store.load, lab.service.decisions.decide, lambda: now[0])
    lab.send("clonedisk", disk="data", copy="copy")
    for now[0], waiting in ((0.0, True), (SOON_S - 1, True), (SOON_S, False), (SOON_S + 60, False)):
        work.step()
        assert work.waiting is waiting
    lab.volumes.slow = False
    work.step()
    assert {row["state"] for row in lab.list()} == {"ready"}


def test_the_list_names_who_has_a_disk_and_who_waits_for_it() -> None:
    lab = Lab()
    for number in (1, 2):
        request = {"gpus": 1, "length_s": HOUR, "disk": "data"}
        lab.service.answer(ADA, {"do": "submit", "key": f"submit-{number}", "request": request})
    [row] = lab.list()
    live = lab.service.answer(ADA, {"do": "state"})["reservations"]
    states = {one["id"]: one["state"] for one in live}
    assert states[row["attached"]] == "active"
    assert [states[id_] for id_ in row["promised"]] == ["queued"]
    assert "has it" in lab.send("deletedisk", disk="data")["error"]


def test_without_an_answer_no_disk_is_lost_and_sizes_are_unknown() -> None:
    lab = Lab()
    lab.send("createdisk", disk="data")
    lab.service.pass_once()
    lab.volumes.failure = OSError("no answer of the API")
    lab.service.pass_once()
    answer = lab.service.answer(ADA, {"do": "disks"})
    assert answer["unknown"] == "no answer of the API"
    assert (answer["disks"][0]["state"], answer["disks"][0]["size"]) == ("ready", None)


def test_a_step_that_is_refused_is_tried_again_and_its_reason_is_audited_once() -> None:
    lab = Lab()
    lab.volumes.failure = NotObeyed("exceeded quota")
    lab.send("createdisk", disk="data")
    for _ in range(3):
        lab.service.pass_once()
    assert lab.list()[0]["reason"] == "exceeded quota"
    lab.volumes.failure = None
    lab.service.pass_once()
    entries = lab.service.answer(ADA, {"do": "history", "subject": "ada/data"})["entries"]
    assert [entry["action"] for entry in reversed(entries)] == ["create disk", "wait for disk", "finish disk"]


def test_a_call_about_disks_with_a_name_of_a_person_in_it_is_refused() -> None:
    lab = Lab()
    assert "unknown fields: person" in lab.service.answer(ADA, {"do": "disks", "person": "bob"})["error"]
    assert "valid createdisk" in lab.send("createdisk", disk="data", person="bob")["error"]
