"""Rules on network file systems: a server that is lost, full targets, evictions and small reads are named."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from gpuctl.audit.rules import storage
from gpuctl.domain.findings import Verdict
from tests.rig.healthy_nodes import Facts, fleet

Change = Callable[[dict[str, Any]], Any]


def bad(change: Change) -> list[tuple[str, Verdict, str]]:
    nodes: dict[str, Facts] = fleet(3)
    change(nodes["n2"]["storage"])
    return [(f.subject, f.verdict, f.message) for f in storage.storage(nodes) if f.verdict is not Verdict.OK]


def test_healthy_nodes_are_ok() -> None:
    assert bad(lambda _: None) == []


CHANGES: dict[str, tuple[Change, Verdict, str]] = {
    "stale": (lambda s: s["mounts"][1].update(error="Stale file handle"), Verdict.FAIL, "/home (nfs4 from nas:/home)"),
    "not mounted": (lambda s: s["mounts"].pop(), Verdict.WARN, "2 of 3 nodes have network file systems on /fsx, /home"),
    "full": (lambda s: s["targets"][0].update(used_percent=99), Verdict.FAIL, "fs-OST0000: 99 % of its space"),
    "inodes": (lambda s: s["targets"][2].update(used_percent=90), Verdict.WARN, "fs-OST0000: 90 % of its inodes"),
    "inactive": (lambda s: s["targets"][1].update(error="inactive"), Verdict.FAIL, "fs-OST0001 is not served"),
    "lost": (lambda s: s["imports"][1].update(state="DISCONN"), Verdict.FAIL, "not connected to fs-OST0001 (DISCONN)"),
    "evicted": (
        lambda s: s["imports"][0].update(evicted=True), Verdict.WARN, "evicted since it was mounted by fs-OST0000",
    ),
    "small": (
        lambda s: s["reads"][0].update(rpcs_by_pages={"1": 70_000, "4": 10_000, "256": 20_000}), Verdict.WARN,
        "fs: 80 % of 100000 reads are of 16 KiB or less",
    ),
    "unread": (lambda s: s["unread"].update({"lfs df /fsx": "no answer"}), Verdict.UNKNOWN, "lfs df /fsx is unknown"),
}  # fmt: skip


@pytest.mark.parametrize("name", CHANGES)
def test_a_fault_is_named_on_its_node_alone(name: str) -> None:
    change, verdict, message = CHANGES[name]
    ((subject, judged, text),) = bad(change)
    assert (subject, judged) == ("n2", verdict)
    assert message in text


def test_few_reads_and_idle_connections_are_no_fault() -> None:
    assert bad(lambda s: s["reads"][0].update(rpcs_by_pages={"1": 900, "256": 1})) == []
    assert bad(lambda s: s["imports"][0].update(state="IDLE")) == []
