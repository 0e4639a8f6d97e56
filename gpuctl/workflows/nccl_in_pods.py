"""Preflight for a run in existing pods: query each pod for whatever would stop the run or disturb a training."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from gpuctl.domain.findings import Finding
from gpuctl.edges.kube import python
from gpuctl.edges.kube.cancel import Stop
from gpuctl.edges.ssh import Failure
from gpuctl.engine import answers, launch_answers, script
from gpuctl.nccl import preflight
from gpuctl.nccl.preflight import pods as rules
from gpuctl.nccl.preflight.facts_file import Fleet
from gpuctl.nccl.runners.kube.exec_transport import PodTransport
from gpuctl.nccl.topology import adapters, racks
from gpuctl.remote import payload
from gpuctl.remote.connection import run_in_all
from gpuctl.workflows import preflight_facts
from gpuctl.workflows.nccl_preflight import LAYOUT_ASKS, LIMIT_S, Layout


@dataclass(frozen=True)
class PodRequest:
    """Request to one pod, by its label in a run."""

    node: str
    stop: Stop = field(default_factory=Stop)


def before(carrier: PodTransport, nodes: Sequence[str], ssh_args: str, *, alone: bool) -> list[Finding]:
    """Check that no job runs in these pods, and that ssh and names work between them; like nccl_preflight for hosts."""
    arguments = preflight_facts.split_ssh_args(ssh_args)
    findings = rules.at_work(_at_work(carrier, nodes))
    fleet = _ask(carrier, nodes, preflight_facts.FactsOptions(ssh_args=arguments, only=rules.ASKS, apart=alone))
    if alone:
        lost = preflight.judge({}, fleet.unasked)
        separate = [
            f for node, facts in fleet.nodes.items() for f in preflight.judge({node: facts}, {}, rules.RULES_ALONE)
        ]
        return [*findings, *(_labelled(carrier, nodes, finding) for finding in (*lost, *separate))]
    judged = preflight.judge(fleet.nodes, fleet.unasked, rules.RULES)
    return [*findings, *(_labelled(carrier, nodes, finding) for finding in judged)]


def layout(carrier: PodTransport, nodes: Sequence[str]) -> Layout:
    """Read the fabric as the pods report it."""
    fleet = _ask(carrier, nodes, preflight_facts.FactsOptions(only=LAYOUT_ASKS, apart=True))
    places, racks_are = racks.of_facts(fleet.nodes)
    label = {carrier.address(node): node for node in nodes}
    rails = () if fleet.unasked else adapters.rails(fleet.nodes)
    devices = {node: adapters.devices(fleet.nodes.get(host, {})) for host, node in label.items()}
    return Layout(rails, {label[host]: "/".join(place) for host, place in places.items()}, racks_are, devices)


def _at_work(carrier: PodTransport, nodes: Sequence[str]) -> rules.Work:
    mark = f"gpuctl-{secrets.token_hex(8)} "
    program = payload.program("gpu_processes", {"mark": mark})

    def ask(at: PodRequest) -> rules.GpuProcesses | str:
        output = python.run(carrier.at(at.node), program, LIMIT_S, at.stop)
        answer = output if isinstance(output, Failure) else payload.answer(output, mark, launch_answers.GpuProcesses)
        return answer.wrong if isinstance(answer, Failure) else answer

    return dict(zip(nodes, run_in_all([PodRequest(node) for node in nodes], ask), strict=True))


def _ask(carrier: PodTransport, nodes: Sequence[str], options: preflight_facts.FactsOptions) -> Fleet:
    """Collect facts of pods, by the host names that they have for each other."""
    requests = preflight_facts.requests({carrier.address(node): carrier.address(node) for node in nodes}, options)
    token = f"gpuctl-{secrets.token_hex(8)} "

    def ask(at: PodRequest) -> Mapping[str, Any] | str:
        host = carrier.address(at.node)
        output = python.run(carrier.at(at.node), script(json.dumps(requests[host]), token), LIMIT_S, at.stop)
        if isinstance(output, Failure):
            return output.wrong
        try:
            answer = answers.find(output, token, requests[host])
        except answers.BadAnswer as error:
            return str(error)
        if "error" in answer:
            return str(answer["error"]["wrong"])
        return {**answer["facts"], "address": host}

    host_answers = run_in_all([PodRequest(node) for node in nodes], ask)
    by_host = dict(zip(map(carrier.address, nodes), host_answers, strict=True))
    silent = {host: answer for host, answer in by_host.items() if isinstance(answer, str)}
    return Fleet({host: answer for host, answer in by_host.items() if not isinstance(answer, str)}, silent)


def _labelled(carrier: PodTransport, nodes: Sequence[str], finding: Finding) -> Finding:
    """Replace host names in a finding by the pods' labels, and its hint by the one for pods."""
    subject, message = finding.subject, finding.message
    for node in nodes:
        subject, message = (text.replace(carrier.address(node), node) for text in (subject, message))
    return replace(finding, subject=subject, message=message, hint=rules.advice(finding))
