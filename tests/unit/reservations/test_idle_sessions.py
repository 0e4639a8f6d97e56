"""Sessions that nobody uses: the service samples their nodes, announces the end, and ends them; unknown is not idle."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gpuctl.reservations.demo import Demo
from gpuctl.reservations.rules.idle import Sample, Use, merged
from gpuctl.reservations.rules.model import HOUR, Caller, Limits, Node, Site
from gpuctl.reservations.stores.memory import MemoryStore

ADA = Caller("ada", "vision")
WINDOW, NOTICE = HOUR, 30 * 60
NOBODY, WORK, LOGIN, UNREAD = Use(0.0, 0), Use(40.0, 0), Use(0.0, 1), Use(None, 0)


def demo() -> Demo:
    nodes = [Node(f"gpu-{number}", "h100", (None,) * 8) for number in (1, 2)]
    return Demo(MemoryStore(Site(Limits(idle_ends=True, idle_window_s=WINDOW)), nodes))


def command(demo: Demo, verb: str, field: str, content: dict[str, Any]) -> dict[str, Any]:
    key = f"key-{verb}-{demo.now}"
    answer = demo.service.answer(ADA, {"do": verb, "key": key, field: content})
    assert "error" not in answer, answer
    row: dict[str, Any] = answer["reservation"]
    return row


def reserve(demo: Demo, gpus: int = 8) -> dict[str, Any]:
    return command(demo, "submit", "request", {"gpus": gpus, "length_s": 10 * HOUR})


def used(demo: Demo, *uses: Use) -> None:
    for node, use in zip(demo.nodes.values(), uses, strict=True):
        node.uses = use


def later(demo: Demo, seconds: int) -> dict[str, Any] | None:
    list(demo.pass_time(seconds))
    rows = [row for row in demo.state()["reservations"] if row["person"] == "ada"]
    return rows[0] if rows else None


@pytest.fixture
def site() -> Demo:
    return demo()


def test_an_unused_session_is_announced_and_ends(site: Demo) -> None:
    used(site, NOBODY, NOBODY)
    id_ = reserve(site)["id"]
    row = later(site, WINDOW - 120)
    assert row is not None
    assert row["idle_end"] is None
    row = later(site, 300)
    assert row is not None
    assert row["idle_end"] is not None
    assert row["idle_end"] == row["expires"]
    assert (
        f"{id_} ends in 30 min: it is idle. For more time: gpuctl reservations keep {id_}"
        in (site.nodes["gpu-1"].warnings[-1])
    )
    assert later(site, NOTICE + 600) is None
    over = site.store.reservation(id_)
    assert over is not None
    assert over.reason == "idle"


@pytest.mark.parametrize("use", [WORK, LOGIN, UNREAD], ids=["work", "login", "unread"])
def test_a_session_that_is_used_or_unknown_stays(site: Demo, use: Use) -> None:
    used(site, use, use)
    reserve(site)
    row = later(site, 3 * HOUR)
    assert row is not None
    assert (row["state"], row["idle_end"]) == ("active", None)


def test_use_withdraws_the_end(site: Demo) -> None:
    used(site, NOBODY, NOBODY)
    reserve(site)
    row = later(site, WINDOW + 300)
    assert row is not None
    assert row["idle_end"] is not None
    used(site, LOGIN, LOGIN)
    row = later(site, 120)
    assert row is not None
    assert row["idle_end"] is None


def test_its_owner_keeps_it(site: Demo) -> None:
    used(site, NOBODY, NOBODY)
    id_ = reserve(site)["id"]
    later(site, WINDOW + 300)
    kept = command(site, "keep", "command", {"reservation": id_, "seconds": 2 * HOUR})
    assert (kept["idle_end"], kept["kept_until"] is not None) == (None, True)
    row = later(site, 2 * HOUR - 120)
    assert row is not None
    assert row["idle_end"] is None
    row = later(site, 300)
    assert row is not None
    assert row["idle_end"] is not None


def test_work_on_one_node_of_a_gang_is_work(site: Demo) -> None:
    used(site, NOBODY, WORK)
    reserve(site, 16)
    row = later(site, 3 * HOUR)
    assert row is not None
    assert row["idle_end"] is None


def test_a_node_without_an_answer_is_not_idle(site: Demo) -> None:
    used(site, NOBODY, NOBODY)
    reserve(site, 16)
    later(site, WINDOW // 2)
    site.nodes["gpu-2"].reachable = False
    row = later(site, 2 * HOUR)
    assert row is not None
    assert row["idle_end"] is None


def test_without_the_option_nothing_ends_and_an_announced_end_is_withdrawn(site: Demo) -> None:
    used(site, NOBODY, NOBODY)
    reserve(site)
    row = later(site, WINDOW + 300)
    assert row is not None
    assert row["idle_end"] is not None
    assert isinstance(site.store, MemoryStore)
    site.store._book = replace(site.store.load(), site=Site(Limits(idle_window_s=WINDOW)))
    row = later(site, 3 * HOUR)
    assert row is not None
    assert (row["state"], row["idle_end"]) == ("active", None)


@pytest.mark.parametrize(
    ("uses", "sample"),
    [
        ([NOBODY, WORK], Sample(1, 40.0, 0)),
        ([UNREAD, NOBODY], Sample(1, None, 0)),
        ([UNREAD, WORK], Sample(1, 40.0, 0)),
        ([None, LOGIN], Sample(1, None, 1)),
        ([None], Sample(1, None, None)),
        ([], Sample(1, None, None)),
    ],
)
def test_nodes_make_one_sample(uses: list[Use | None], sample: Sample) -> None:
    assert merged(1, uses) == sample
