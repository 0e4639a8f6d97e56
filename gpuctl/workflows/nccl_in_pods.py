"""Before a run in pods that run already: what would stop it, or spoil a training, asked in each of them."""

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
from gpuctl.engine import answer, script
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
class Asked:
    """A pod, by what a run calls it, as one asks it."""

    node: str
    stop: Stop = field(default_factory=Stop)


def before(carrier: PodTransport, nodes: Sequence[str], ssh_args: str, alone: bool) -> list[Finding]:
    """No job at work in these pods, and ssh and names between them; as nccl_before has it for hosts."""
    words = preflight_facts.words_for_ssh(ssh_args)
    found = rules.at_work(_at_work(carrier, nodes))
    fleet = _ask(carrier, nodes, preflight_facts.Way(ssh_args=words, only=rules.ASKS, apart=alone))
    if alone:
        lost = preflight.judge({}, fleet.unasked)
        each = [f for node, own in fleet.nodes.items() for f in preflight.judge({node: own}, {}, rules.RULES_ALONE)]
        return [*found, *(_labelled(carrier, nodes, one) for one in (*lost, *each))]
    judged = preflight.judge(fleet.nodes, fleet.unasked, rules.RULES)
    return [*found, *(_labelled(carrier, nodes, one) for one in judged)]


def layout(carrier: PodTransport, nodes: Sequence[str]) -> Layout:
    """What the pods know of the fabric by themselves."""
    fleet = _ask(carrier, nodes, preflight_facts.Way(only=LAYOUT_ASKS, apart=True))
    places, racks_are = racks.of_facts(fleet.nodes)
    label = {carrier.address(node): node for node in nodes}
    rails = () if fleet.unasked else adapters.rails(fleet.nodes)
    devices = {node: adapters.devices(fleet.nodes.get(host, {})) for host, node in label.items()}
    return Layout(rails, {label[host]: "/".join(place) for host, place in places.items()}, racks_are, devices)


def _at_work(carrier: PodTransport, nodes: Sequence[str]) -> rules.Work:
    mark = f"gpuctl-{secrets.token_hex(8)} "
    program = payload.program("gpu_processes", {"mark": mark})

    def ask(at: Asked) -> dict[str, Any] | None:
        said = python.run(carrier.at(at.node), program, LIMIT_S, at.stop)
        return None if isinstance(said, Failure) else payload.answer(said, mark)

    return dict(zip(nodes, run_in_all([Asked(node) for node in nodes], ask), strict=True))


def _ask(carrier: PodTransport, nodes: Sequence[str], way: preflight_facts.Way) -> Fleet:
    """Facts of pods, which are called here by the names that they have for each other."""
    wanted = preflight_facts.requests({carrier.address(node): carrier.address(node) for node in nodes}, way)
    token = f"gpuctl-{secrets.token_hex(8)} "

    def ask(at: Asked) -> Mapping[str, Any] | str:
        host = carrier.address(at.node)
        said = python.run(carrier.at(at.node), script(json.dumps(wanted[host]), token), LIMIT_S, at.stop)
        told = None if isinstance(said, Failure) else answer(said, token)
        if isinstance(said, Failure):
            return said.wrong
        if told is None or "error" in told:
            return str(told["error"]["wrong"]) if told else "it ran our program and gave no answer"
        return {**told["facts"], "address": host}

    asked = run_in_all([Asked(node) for node in nodes], ask)
    answers = dict(zip(map(carrier.address, nodes), asked, strict=True))
    silent = {host: told for host, told in answers.items() if isinstance(told, str)}
    return Fleet({host: told for host, told in answers.items() if not isinstance(told, str)}, silent)


def _labelled(carrier: PodTransport, nodes: Sequence[str], finding: Finding) -> Finding:
    """With what we call the pods, and what can be done about it there."""
    subject, says = finding.subject, finding.message
    for node in nodes:
        subject, says = (text.replace(carrier.address(node), node) for text in (subject, says))
    return replace(finding, subject=subject, message=says, hint=rules.advice(finding))
