"""Judge whether the pods can run a training, from their answers."""

from __future__ import annotations

from collections.abc import Sequence

from gpuctl.cluster.environment import Object
from gpuctl.cluster.probe import judge
from gpuctl.cluster.probe.flow import PortCheck
from gpuctl.cluster.probe.model import Facts
from gpuctl.cluster.train.launch import PROGRAMS, Launch
from gpuctl.domain.findings import Finding, Verdict


def ssh_hosts(launch: Launch) -> dict[str, list[str]]:
    """Hosts that the first pod must reach by ssh, including itself."""
    env = launch.env
    return {env.pod_name(0): [env.host(rank) for rank in range(launch.nodes)]} if launch.uses_ssh else {}


def all_of(
    launch: Launch, deployed: int, pods: dict[str, Object], facts: Sequence[Facts], port_check: PortCheck | None
) -> list[Finding]:
    """All problems and unknowns. `deployed`: how many pods the environment requests."""
    by_hostfile = launch.launcher != "torchrun"
    return [
        *judge.pods(launch.env, launch.nodes, pods),
        *judge.unread(facts),
        *script(facts),
        *launchers(launch, facts),
        *judge.hostfile(launch.env, deployed, facts, by_hostfile),
        *judge.names(facts),
        *judge.port(launch.env, facts, port_check),
        *judge.ssh(facts, ssh_hosts(launch)),
        *judge.gpus(launch.env, facts, launch.processes, exactly=False),
        *judge.trainings(facts),
    ]


def script(facts: Sequence[Facts]) -> list[Finding]:
    """The script exists in every pod and is the same everywhere."""
    answers = {pod.pod: pod.answer["script"] for pod in judge.read(facts)}
    missing = {pod: f"it cannot be read: {answer['why']}" for pod, answer in answers.items() if "why" in answer}
    hashes = {pod: answer["sha256"] for pod, answer in answers.items() if "why" not in answer}
    first = next(iter(hashes), "")
    other = {pod: f"it differs from the one in {first}" for pod, digest in hashes.items() if digest != hashes[first]}
    return judge.together("script", Verdict.FAIL, {**missing, **other}, f"sync first: {judge.SYNC}")


def launchers(launch: Launch, facts: Sequence[Facts]) -> list[Finding]:
    """The launcher's programs exist and support the options that gpuctl passes."""
    needed, problems, unknown = PROGRAMS[launch.launcher], {}, {}
    for pod in judge.read(facts):
        required = needed if launch.uses_ssh and pod.pod == launch.env.pod_name(0) else needed[:1]
        lacking = [name for name in required if not pod.answer["programs"][name]]
        if lacking:
            problems[pod.pod] = f"the image has no {', '.join(lacking)}"
        elif launch.launcher == "deepspeed-nossh" and pod.answer["no_ssh"] is False:
            problems[pod.pod] = "its deepspeed is older than --no_ssh"
        elif launch.launcher == "deepspeed-nossh" and pod.answer["no_ssh"] is None:
            unknown[pod.pod] = "cannot determine whether its deepspeed supports --no_ssh"
    hint = "choose another --launcher, or an image that has it"
    return [
        *judge.together("launcher", Verdict.FAIL, problems, hint),
        *judge.together("launcher", Verdict.UNKNOWN, unknown),
    ]
