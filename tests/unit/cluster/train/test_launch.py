"""What each pod runs, by launcher, and what a training needs of its pods."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from gpuctl.cluster.environment import EnvironmentRequest, environment
from gpuctl.cluster.train import checks, launch
from gpuctl.cluster.train.launch import Launch
from gpuctl.cluster.train.request import Launcher
from gpuctl.core.errors import InvalidInput
from gpuctl.domain.findings import Verdict
from tests.rig.cluster.files import cluster
from tests.rig.cluster.probe_answers import facts

WHERE = "--master_addr=lab-0.lab.team.svc --master_port=29500 train.py --lr 1"


@pytest.fixture
def asked(tmp_path: Path) -> Launch:
    env = environment(cluster(tmp_path), EnvironmentRequest(nodes=2))
    return Launch(env, "torchrun", "train.py", ("--lr", "1"), 2, 8, "/workspace", {"A": "b"})


def test_torchrun_runs_in_each_pod_with_its_rank(asked: Launch) -> None:
    assert asked.starts == [0, 1]
    assert launch.command(asked, 1) == f"torchrun --nnodes=2 --node_rank=1 --nproc_per_node=8 {WHERE}".split()


def test_deepspeed_runs_on_the_first_pod_alone_and_reads_the_hostfile(asked: Launch) -> None:
    one = replace(asked, launcher="deepspeed")
    assert one.starts == [0]
    size = "--hostfile=/job/hostfile --num_nodes=2 --num_gpus=8"
    assert launch.command(one, 0) == f"deepspeed {size} {WHERE}".split()
    each = replace(asked, launcher="deepspeed-nossh")
    assert each.starts == [0, 1]
    assert launch.command(each, 1) == f"deepspeed {size} --no_ssh --node_rank=1 {WHERE}".split()
    assert [launch.size(launch.command(kind, 0)) for kind in (asked, one)] == [2, 2]
    assert launch.is_by_ssh(launch.command(one, 0))
    assert not launch.is_by_ssh(launch.command(each, 0))


def test_variables_reach_the_other_pods_beside_the_users_own(asked: Launch) -> None:
    assert launch.passed_on(asked, ["X=1\n", "not a variable\nY=2"]) == "X=1\nY=2\nA=b\n"
    assert launch.variables(asked) == {"PYTHONUNBUFFERED": "1", "A": "b"}
    assert launch.variables(replace(asked, variables={"PYTHONUNBUFFERED": ""})) == {"PYTHONUNBUFFERED": ""}


@pytest.mark.parametrize("word", ["$HOME", "a;b", "it's", "50%", "a\nb", ""])
def test_what_shells_on_other_pods_would_read_is_refused_only_where_there_are_any(asked: Launch, word: str) -> None:
    with pytest.raises(InvalidInput, match="goes through ssh and pdsh") as caught:
        launch.check(replace(asked, launcher="deepspeed", args=(word,)))
    assert "deepspeed-nossh" in caught.value.hint
    with pytest.raises(InvalidInput, match="the value of TOKEN goes"):
        launch.check(replace(asked, launcher="deepspeed", variables={"TOKEN": "a$b"}))
    with pytest.raises(InvalidInput, match="'my code'"):
        launch.check(replace(asked, launcher="deepspeed", args=("a b",), folder="my code"))
    launch.check(replace(asked, args=(word,)))


@pytest.mark.parametrize(
    ("has", "no_ssh", "found", "why"),
    [
        ({"torchrun": "/t", "pdsh": "/p"}, None, "torchrun", "all pods have it"),
        ({"torchrun": "/t", "deepspeed": "/d"}, True, "torchrun", "deepspeed-nossh is for scripts that need"),
        ({"deepspeed": "/d"}, True, "deepspeed-nossh", "not all pods have torchrun"),
        ({"deepspeed": "/d", "pdsh": "/p", "ssh": "/s"}, False, "deepspeed", "the first has pdsh"),
        ({"deepspeed": "/d"}, False, "torchrun", "not all pods have it, nor a deepspeed that can be used"),
    ],
)
def test_auto_takes_what_all_pods_have(
    has: dict[str, str | None], no_ssh: bool | None, found: Launcher, why: str
) -> None:
    name, said = launch.chosen([has, has], [no_ssh, no_ssh])
    assert name == found
    assert why in said


def test_auto_takes_no_launcher_that_one_pod_lacks() -> None:
    both = {"torchrun": "/t", "deepspeed": "/d"}
    assert launch.chosen([both, {"torchrun": None, "deepspeed": "/d"}], [True, True])[0] == "deepspeed-nossh"
    assert launch.chosen([{"deepspeed": "/d"}, {"deepspeed": None}], [True, None])[0] == "torchrun"


def test_for_one_pod_deepspeed_needs_neither_pdsh_nor_ssh(asked: Launch) -> None:
    one = replace(asked, launcher="deepspeed", nodes=1, args=("$HOME",))
    assert (one.starts, one.uses_ssh, checks.ssh_hosts(one)) == ([0], False, {})
    launch.check(one)
    programs = {"deepspeed": "/d", "pdsh": None, "ssh": None, "torchrun": None}
    assert checks.launchers(one, [facts(asked.env, 0, programs=programs)]) == []


def test_a_script_that_is_missing_or_another_in_one_pod_is_reported(asked: Launch) -> None:
    env = asked.env
    missing = facts(env, 1, script={"why": "No such file or directory"})
    [found] = checks.script([facts(env, 0), missing])
    assert (found.subject, found.message) == ("lab-1", "it cannot be read: No such file or directory")
    [found] = checks.script([facts(env, 0), facts(env, 1, script={"sha256": "b" * 64})])
    assert (found.subject, found.message) == ("lab-1", "it differs from the one in lab-0")
    assert found.hint.startswith("sync first")


def test_the_launcher_is_needed_where_it_is_started(asked: Launch) -> None:
    env = asked.env
    none = {"deepspeed": None, "pdsh": None, "ssh": None, "torchrun": None}
    only = {**none, "deepspeed": "/d"}
    both = [facts(env, 0, programs=only), facts(env, 1, programs=only)]
    [found] = checks.launchers(replace(asked, launcher="deepspeed"), both)
    assert (found.subject, found.message) == ("lab-0", "the image has no pdsh, ssh")
    assert checks.launchers(replace(asked, launcher="deepspeed-nossh"), both) == []
    found = checks.launchers(asked, [facts(env, 0), facts(env, 1, programs=none)])[0]
    assert (found.subject, found.message) == ("lab-1", "the image has no torchrun")


def test_a_deepspeed_of_which_nobody_knows_the_options_is_unknown_and_an_old_one_fails(asked: Launch) -> None:
    one = replace(asked, launcher="deepspeed-nossh")
    found = checks.launchers(one, [facts(asked.env, 0, no_ssh=None), facts(asked.env, 1, no_ssh=False)])
    assert {(each.subject, each.verdict) for each in found} == {("lab-0", Verdict.UNKNOWN), ("lab-1", Verdict.FAIL)}


def test_all_checks_together_say_everything_at_once(asked: Launch) -> None:
    env = asked.env
    both = [facts(env, 0, script={"why": "gone"}), facts(env, 1, names={env.host(0): "late"})]
    found = checks.all_of(asked, 2, {}, both, None)
    assert {each.check for each in found} == {"pods", "script", "dns"}
