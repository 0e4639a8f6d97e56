"""What a training needs, judged from what the pods answered."""

from __future__ import annotations

from collections.abc import Sequence

from gpuctl.cluster.environment import Object
from gpuctl.cluster.probe import judge
from gpuctl.cluster.probe.flow import Held
from gpuctl.cluster.probe.model import Facts
from gpuctl.cluster.train.launch import PROGRAMS, Launch
from gpuctl.domain.findings import Finding, Verdict


def ssh_hosts(launch: Launch) -> dict[str, list[str]]:
    """Whom the first pod reaches by ssh: itself, too."""
    env = launch.env
    return {env.pod_name(0): [env.host(rank) for rank in range(launch.nodes)]} if launch.uses_ssh else {}


def all_of(
    launch: Launch, deployed: int, pods: dict[str, Object], facts: Sequence[Facts], held: Held | None
) -> list[Finding]:
    """All that stands against it, and what nobody knows. `deployed`: how many pods the environment is to have."""
    by_hostfile = launch.launcher != "torchrun"
    return [
        *judge.pods(launch.env, launch.nodes, pods),
        *judge.unread(facts),
        *script(facts),
        *launchers(launch, facts),
        *judge.hostfile(launch.env, deployed, facts, by_hostfile),
        *judge.names(facts),
        *judge.port(launch.env, facts, held),
        *judge.ssh(facts, ssh_hosts(launch)),
        *judge.gpus(launch.env, facts, launch.processes, exactly=False),
        *judge.trainings(facts),
    ]


def script(facts: Sequence[Facts]) -> list[Finding]:
    """It is in every pod, and the same."""
    told = {each.pod: each.told["script"] for each in judge.read(facts)}
    missing = {pod: f"it cannot be read: {said['why']}" for pod, said in told.items() if "why" in said}
    there = {pod: said["sha256"] for pod, said in told.items() if "why" not in said}
    first = next(iter(there), "")
    other = {pod: f"it is not the same as in {first}" for pod, found in there.items() if found != there[first]}
    return judge.together("script", Verdict.FAIL, {**missing, **other}, f"sync first: {judge.SYNC}")


def launchers(launch: Launch, facts: Sequence[Facts]) -> list[Finding]:
    """The launcher's programs are there, and know the options that we give."""
    needed, words, unknown = PROGRAMS[launch.launcher], {}, {}
    for each in judge.read(facts):
        wanted = needed if launch.uses_ssh and each.pod == launch.env.pod_name(0) else needed[:1]
        lacking = [name for name in wanted if not each.told["programs"][name]]
        if lacking:
            words[each.pod] = f"the image has no {', '.join(lacking)}"
        elif launch.launcher == "deepspeed-nossh" and each.told["no_ssh"] is False:
            words[each.pod] = "its deepspeed is older than --no_ssh"
        elif launch.launcher == "deepspeed-nossh" and each.told["no_ssh"] is None:
            unknown[each.pod] = "nobody knows whether its deepspeed has --no_ssh"
    hint = "another --launcher, or an image that has it"
    return [
        *judge.together("launcher", Verdict.FAIL, words, hint),
        *judge.together("launcher", Verdict.UNKNOWN, unknown),
    ]
