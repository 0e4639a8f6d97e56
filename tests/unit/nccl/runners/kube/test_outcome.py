"""What launches came to: what could not be tested is told from what is bad, and the API's faults from the nodes'."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gpuctl.nccl.model import Launch, LaunchResult, Outcome, Sweep
from gpuctl.nccl.parsing import parse
from gpuctl.nccl.runners.kube import outcome
from gpuctl.nccl.runners.kube.model import LIMIT, Settings, Task
from gpuctl.nccl.runners.kube.pod_placement import ANYWHERE, INDEX
from gpuctl.nccl.runners.kube.worker_report import WorkerReport
from tests.unit.nccl.runners.kube.test_objects import EFA

PAIR = Task("0a1b2c3d", 0, Launch(("node-1", "node-2"), Sweep(gpus_per_node=1, limit_s=25)), EFA, "ann@desk")
FAILED = "w1: Test NCCL failure all_reduce.cu:44 'unhandled system error (run with NCCL_DEBUG=INFO for details) / '\n"


def pod(code: int | None = None, **status: Any) -> dict[str, Any]:
    state = {"running": {}} if code is None else {"terminated": {"exitCode": code}}
    return {"metadata": {"labels": {}}, "status": {"containerStatuses": [{"state": state}], **status}}


def pods(code: int | None = None) -> dict[str, Any]:
    return {"node-1": pod(), "node-2": pod(), ANYWHERE: pod(code)}


def settled(text: str = "", task: Task = PAIR, own: WorkerReport | None = None, **more: Any) -> LaunchResult:
    last = tuple(text.splitlines())
    seen = outcome.LaunchObservations("", "", "", pods(3), last, "", (), 5.0, own or WorkerReport())
    runs = list(parse.runs(iter(text.splitlines(keepends=True))))
    return outcome.settled(task, runs, replace(seen, **more))


def is_untested(ended: LaunchResult) -> bool:
    run = ended.run
    return run.outcome is Outcome.EMPTY and not run.rows and not run.ranks and not ended.lost and bool(run.cause)


def test_what_never_began_was_not_tested() -> None:
    ended = settled(never="node-2: it cannot be placed: Insufficient nvidia.com/gpu")
    assert is_untested(ended)
    assert ended.run.cause == "node-2: it cannot be placed: Insufficient nvidia.com/gpu"


def test_an_api_that_went_away_says_nothing_of_the_nodes() -> None:
    ended = settled(FAILED, unknown="read the log of p: the cluster does not answer")
    assert is_untested(ended)
    assert ended.run.cause == "not known: cannot read the log of p: the cluster does not answer"


def test_an_image_without_the_program_was_not_tested() -> None:
    ended = settled("gpuctl: missing all_reduce_perf\n")
    assert is_untested(ended)
    assert str(ended.run.cause).startswith("the image example/nccl-tests:1 has no all_reduce_perf")


def test_a_launcher_that_was_evicted_alone_says_nothing_of_the_nodes() -> None:
    evicted = pod(reason="Evicted", message="the node was low on memory")
    ended = settled(pods={**pods(), ANYWHERE: evicted})
    assert is_untested(ended)
    assert "the launcher: its pod was ended (Evicted): the node was low on memory" in str(ended.run.cause)


def test_a_worker_that_was_evicted_is_the_cause() -> None:
    gone = pod(reason="Evicted", message="the node was low on memory")
    ended = settled(pods={**pods(1), "node-2": gone})
    assert (ended.run.outcome, ended.run.cause) == (
        Outcome.KILLED,
        "node-2: its pod was ended (Evicted): the node was low on memory",
    )


def test_a_failure_of_the_test_stays_one_and_tells_of_too_little_memory() -> None:
    own = WorkerReport(memlock={"w0": "unlimited", "w1": "64"})
    ended = settled(FAILED, report=own)
    assert ended.run.outcome is Outcome.FAILED
    assert "unhandled system error" in str(ended.run.cause)
    assert "too little memory may be locked for RDMA on node-2 (64 KiB)" in str(ended.run.cause)


def looked(*lines: str) -> WorkerReport:
    own = WorkerReport()
    assert all(own.take(f"gpuctl: look {line}") for line in lines)
    own.looked = True
    return own


def test_a_hang_names_the_rank_that_does_nothing_and_who_waits() -> None:
    own = looked(
        "w0 0 17 R 5,0,1,1, 0",
        "w0 1 17 R 9,0,1,2, 0",
        "w0 end",
        "w1 0 18 T 5,0,1,1, 1",
        "w1 1 18 T 5,0,1,1, 1",
        "w1 end",
    )
    ended = settled(stop=LIMIT, pods=pods(), report=own, done_size="64M")
    assert ended.run.outcome is Outcome.HUNG
    assert str(ended.run.cause).startswith("no end within 25 s, after 64M: on node-2 rank 1 is stopped")
    assert ended.waiting == {"node-1": "waiting", "node-2": "gone"}


def test_a_hang_that_could_not_be_looked_at_is_not_known() -> None:
    ended = settled(stop=LIMIT, pods=pods(), done_size="64M")
    assert "the state of the ranks could not be read" in str(ended.run.cause)
    assert ended.waiting == {"node-1": "unknown", "node-2": "unknown"}


def test_a_test_that_ended_at_the_very_limit_did_not_hang() -> None:
    ended = settled(FAILED, stop=LIMIT)
    assert ended.run.outcome is Outcome.FAILED


def test_the_operators_workers_are_named_by_the_nodes_they_are_on() -> None:
    task = replace(PAIR, settings=Settings("example/nccl-tests:1", mpijob=True))
    found = pods()
    for name, index in (("node-1", "1"), ("node-2", "0")):
        found[name]["metadata"]["labels"] = {INDEX: index}
    own = looked("w0 0 18 T 5,0, 0", "w0 1 18 T 5,0, 0", "w0 end", "w1 0 17 R 5,0, 1", "w1 1 17 R 9,0, 1", "w1 end")
    ended = settled(task=task, stop=LIMIT, pods=found, report=own)
    assert "on node-2 rank 0 is stopped" in str(ended.run.cause)
    assert ended.launch.nodes == ("node-1", "node-2")


def test_nodes_that_are_called_as_other_pods_are_not_mistaken_for_them() -> None:
    """The pods of nodes w1 and w2 call themselves w0 and w1."""
    task = Task("0a1b2c3d", 0, Launch(("w1", "w2"), Sweep(gpus_per_node=1, limit_s=25)), EFA, "ann@desk")
    text = "#  Rank  0 Group  0 Pid 1 on w0 device  0 [0] X\n#  Rank  1 Group  0 Pid 2 on w1 device  0 [0] X\n"
    ended = settled(text + FAILED, task, pods={"w1": pod(), "w2": pod(), ANYWHERE: pod(3)})
    assert str(ended.run.cause).startswith("w2: unhandled system error")
