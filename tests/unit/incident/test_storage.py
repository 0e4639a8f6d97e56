"""Nodes compared with each other, and the cause of slow storage."""

from __future__ import annotations

from gpuctl.domain.findings import Verdict, fail, warn
from gpuctl.incident import storage
from gpuctl.incident.model import Certainty
from tests.rig.storage_facts import facts, limit, nfs, trial

CKPT = [{"pid": 9, "name": "python3", "is_writer": True, "read_bytes": 0, "written_bytes": 5 * 10**9}]


def test_a_node_that_reads_slower_than_the_others_is_the_cause_and_not_the_storage() -> None:
    nodes = {f"n{number}": facts("nfs4") for number in range(4)} | {"n4": facts("nfs4", trial=trial(speed=0.2))}
    findings = storage.judge(nodes)
    assert {f.subject for f in findings if f.verdict is Verdict.FAIL} == {"n4"}
    assert (
        "from fs-0f00.efs.us-east-1.amazonaws.com:/: 104.9 MB/s, 1 stream (median of 5 nodes: 524.3)"
        in findings[0].message
    )
    cause = storage.cause(findings)
    assert (cause.certainty, cause.nodes) == (Certainty.LIKELY, ("n4",))


def test_one_slow_measurement_may_be_noise_and_is_no_cause() -> None:
    phases = [{**row, "bytes": row["bytes"] // (4 if row["name"] == "sequential" else 1)} for row in trial()["phases"]]
    nodes = {f"n{number}": facts("nfs4") for number in range(4)} | {"n4": facts("nfs4", trial=trial(phases=phases))}
    findings = storage.judge(nodes)
    assert [f.verdict for f in findings if f.check == "slow-node"] == [Verdict.WARN]
    assert storage.cause(findings).certainty is Certainty.UNKNOWN


def test_a_path_that_only_one_node_lacks_is_not_mounted_and_one_that_all_lack_is_a_mistake() -> None:
    lacks = facts(mount=None, trial=None, unread={"path": "No such file or directory"})
    cause = storage.cause(storage.judge({"n1": facts(), "n2": facts(), "n3": lacks}))
    assert (cause.certainty, cause.nodes) == (Certainty.LIKELY, ("n3",))
    assert "not mounted" in cause.text
    assert storage.cause(storage.judge({"n1": lacks, "n2": lacks})).certainty is Certainty.UNKNOWN


def test_two_nodes_accuse_nobody_and_half_of_the_nodes_are_no_minority() -> None:
    slow = facts("nfs4", trial=trial(speed=0.2))
    for nodes in (
        {"n1": facts("nfs4"), "n2": slow},
        {"n1": facts("nfs4"), "n2": slow, "n3": slow, "n4": facts("nfs4")},
    ):
        assert storage.cause(storage.judge(nodes)).certainty is Certainty.UNKNOWN


def test_trials_through_the_page_cache_are_not_compared() -> None:
    cached = facts("nfs4", trial=trial(speed=0.1, is_direct=False))
    nodes = {f"n{number}": facts("nfs4") for number in range(3)} | {"n3": cached}
    assert [f for f in storage.judge(nodes) if f.check == "slow-node"] == []


def test_local_disks_which_may_be_of_different_models_are_not_compared() -> None:
    nodes = {f"n{number}": facts() for number in range(4)} | {"n4": facts(trial=trial(speed=0.2))}
    assert [f for f in storage.judge(nodes) if f.check == "slow-node"] == []


def test_a_limit_is_proven_and_comes_before_what_it_explains() -> None:
    node = facts("nfs4", limits=[limit(250_000_000)], nfs={"/data": nfs(reads__rtt_ms=90_000)})
    cause = storage.cause(storage.judge({"n1": node}))
    assert (cause.certainty, cause.nodes) == (Certainty.PROVEN, ("n1",))
    assert "limit" in cause.text


def test_writers_of_all_nodes_are_counted_together_and_complete_the_cause() -> None:
    nodes = {
        f"n{number}": facts("nfs4", users=CKPT * 2, nfs={"/data": nfs(reads__rtt_ms=90_000)}) for number in range(4)
    }
    findings = storage.judge(nodes)
    [writers] = [f for f in findings if f.check == "writers"]
    assert "8 processes write at the same time, 8000.0 MB/s together" in writers.message
    assert storage.cause(findings).text.endswith("as checkpoints of all ranks do")


def test_hidden_processes_are_not_taken_for_none() -> None:
    [finding] = [f for f in storage.judge({"n1": facts(hidden=40)}) if f.check == "writers"]
    assert "(40) are hidden" in finding.message


def test_one_slow_stream_beside_fast_ones_waits_for_answers() -> None:
    phases = [{**row, "bytes": row["bytes"] // (12 if row["streams"] == 1 else 1)} for row in trial()["phases"]]
    findings = storage.judge({"n1": facts(trial=trial(phases=phases))})
    assert [f.check for f in findings if f.verdict is Verdict.WARN] == ["streams"]


def test_nothing_conspicuous_is_an_honest_not_found() -> None:
    findings = storage.judge({"n1": facts()})
    assert [(f.check, f.verdict) for f in findings] == [("measured", Verdict.OK)]
    assert "524.3 MB/s, 1 stream" in findings[0].message
    assert storage.cause(findings).text == storage.NOT_FOUND


def test_warnings_and_unreached_nodes_are_no_cause() -> None:
    findings = [warn("nfs", "n1", "late"), *storage.unreached({"n2": "no answer"})]
    assert storage.cause(findings).certainty is Certainty.UNKNOWN
    assert storage.cause([*findings, fail("disk", "n1", "busy")]).certainty is Certainty.LIKELY
