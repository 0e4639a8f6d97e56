"""Nodes and jobs of scontrol and squeue, in the forms of Slurm 17.11 to 25."""

from __future__ import annotations

import pytest

from gpuctl.domain import slurm_records
from gpuctl.domain.slurm_records import Gres, JobRecord

NODE = (
    "NodeName=h2 Arch=x86_64 CPUTot=2 Gres=gpu:h200:2(S:0-1),nic:1 GresDrain=N/A GresUsed=gpu:h200:1(IDX:0),nic:0 "
    "NodeAddr=10.100.0.4 NodeHostName=host2 OS=Linux 6.1 #1 SMP State=IDLE+DRAIN Partitions=main,night "
    "CfgTRES=cpu=2,gres/gpu=2 AllocTRES= Reason=GPU 3: Xid 79, [ticket 5] [alice@2026-11-27T23:00:18]"
)
JOB = (
    "JobId={number} JobName={name} UserId=alice(1000) GroupId=alice(1000) JobState=RUNNING NodeList=h[3-4] "
    "JOB_GRES=gpu:h200:3   Nodes=h[3-4] CPU_IDs=0 Mem=0 GRES=gpu:h200:1(IDX:0) "
    "  Nodes=h2 CPU_IDs=0-1 Mem=0 GRES=gpu:h200:2(IDX:0-1) MinCPUsNode=1 Command={command} WorkDir=/\n"
)
NAMES = {"h[3-4]": ["h3", "h4"], "h2": ["h2"], "h1": ["h1"]}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("gpu:h200:3(IDX:0-1,3),shard:8", (Gres("h200", 3, (0, 1, 3)),)),
        ("gpu:m60:8(IDX:0-7)", (Gres("m60", 8, tuple(range(8))),)),
        ("gpu:8", (Gres("", 8),)),
        ("gpu:0", (Gres("", 0),)),
        ("gpu:h200:0(IDX:N/A)", (Gres("h200", 0),)),
        ("gpu:a:1(S:0),gpu:b:2(S:1)", (Gres("a", 1), Gres("b", 2))),
        ("cpu=8,mem=1M,gres/gpu=2,gres/gpu:h200=2", (Gres("", 2), Gres("h200", 2))),
        ("gpu:1g.10gb:7", (Gres("1g.10gb", 7),)),
        ("(null)", ()),
        ("N/A", ()),
        ("", ()),
        ("gpu:x(IDX:0)", ()),
    ],
)
def test_gpus_are_counted_and_numbered(text: str, expected: tuple[Gres, ...]) -> None:
    assert slurm_records.gres(text) == expected


def test_a_node_has_its_gpus_names_state_and_reason() -> None:
    [node] = slurm_records.nodes(NODE, {"h2": "drained"})
    assert (node.name, node.addresses, node.partitions) == ("h2", ("h2", "host2", "10.100.0.4"), ("main", "night"))
    assert (node.state, node.total, node.used) == ("drained", 2, (Gres("h200", 1, (0,)),))
    assert (node.reason, node.by) == ("GPU 3: Xid 79, [ticket 5]", "alice")
    assert node.since == slurm_records.time_of("2026-11-27T23:00:18")


def test_gpus_of_a_node_without_gres_are_those_of_its_tres_counted_once() -> None:
    [node] = slurm_records.nodes("NodeName=a Gres=(null) State=IDLE CfgTRES=cpu=2,gres/gpu=4,gres/gpu:h200=4", {})
    assert (node.total, node.used, node.state) == (4, None, "idle")


def rows(number: str, name: str) -> list[dict[str, str]]:
    return slurm_records.queue(f"T|{number}|1000|alice|ml|main|RUNNING|2026-11-27T20:00:00|h[2-4]|{name}\n", "T")


def job(name: str = "train", command: str = "/job.sh", details: str = "") -> JobRecord:
    text = JOB.format(number="7", name=name, command=command) + details
    [made] = slurm_records.jobs(rows("7", name), text, NAMES)
    return made


def test_a_job_has_other_gpus_on_each_of_its_nodes() -> None:
    one = job()
    assert (one.number, one.user, one.account, one.name) == ("7", "alice", "ml", "train")
    assert one.gpus == {
        "h2": (Gres("h200", 2, (0, 1)),),
        "h3": (Gres("h200", 1, (0,)),),
        "h4": (Gres("h200", 1, (0,)),),
    }


FORGED = "Nodes=h1 CPU_IDs=0 Mem=0 GRES=gpu:h200:2(IDX:0-1)"


@pytest.mark.parametrize(
    "one",
    [
        {"name": f"x UserId=root(0) JOB_GRES=gpu:8 {FORGED} "},
        {"name": "a|b|c"},
        {"command": f"/x {FORGED}"},
        {"name": f"x\nNodeName=h9 {FORGED}"},
    ],
)
def test_what_a_user_writes_into_the_job_gives_it_no_gpus(one: dict[str, str]) -> None:
    assert set(job(**one).gpus) == {"h2", "h3", "h4"}


def test_gpus_of_a_job_with_two_records_are_unknown() -> None:
    assert job(details=f"JobId=7 JobName=train UserId=alice(1000) {FORGED} MinCPUsNode=1\n").gpus == {}


def test_the_older_name_of_a_jobs_numbers_is_read() -> None:
    text = "JobId=7 JobName=n UserId=a(1) Nodes=h1 CPU_IDs=0 Mem=0 GRES_IDX=gpu:m60:2(IDX:4-5) MinCPUsNode=1"
    [one] = slurm_records.jobs(rows("7", "n"), text, NAMES)
    assert one.gpus == {"h1": (Gres("m60", 2, (4, 5)),)}


def test_a_time_that_is_none_is_unknown() -> None:
    assert slurm_records.time_of("Unknown") is None
