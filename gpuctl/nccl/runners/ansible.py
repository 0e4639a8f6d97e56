"""Runs launches by the playbook nccl.yml: for nodes that Ansible alone reaches (a password, a bastion of its own)."""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from gpuctl.domain import ranks as hang
from gpuctl.edges import ansible
from gpuctl.edges.ssh import Failure
from gpuctl.nccl import plan
from gpuctl.nccl.launch import outcome
from gpuctl.nccl.launch.output import KEPT_LINES, file_name
from gpuctl.nccl.model import Launch, LaunchResult
from gpuctl.nccl.parsing import parse
from gpuctl.nccl.runner import ProgressListener
from gpuctl.nccl.runners.mpirun import MpirunOptions, refuse_shared

PLAYBOOK = "gpuctl.fleet.nccl"
ANSIBLE_S = 120  # for Ansible itself, beside the test: connections, modules, other hosts


class AnsibleRunner:
    """A Runner (see runner.py) through ansible-runner. Of each launch it tells when it began and when it ended.

    `addresses`: node -> how the others reach it.
    """

    def __init__(self, inventory: Path, addresses: Mapping[str, str], options: MpirunOptions | None = None) -> None:
        self.inventory, self.addresses, self.options = inventory, addresses, options or MpirunOptions()

    def run(
        self, launches: Sequence[Launch], listener: ProgressListener, broken_off: Callable[[], bool]
    ) -> list[LaunchResult]:
        """See Runner.run."""
        refuse_shared(launches)
        if not launches:
            return []
        mark, heard = secrets.token_hex(8), _Heard(launches, listener)
        runs = {launch.nodes[0]: self._asked(launch) for launch in launches}
        nodes = [node for launch in launches for node in launch.nodes]
        longest = max(_whole_s(launch) for launch in launches)
        for launch in launches:
            listener(launch, "started through Ansible")
        try:
            error = ansible.run(self._play(nodes, mark, runs, longest), heard.take, broken_off)
            stop = "broken off" if broken_off() else ""
        except BaseException:
            self._end(nodes, mark, _Heard((), listener))
            raise
        # What was begun is ended, and seen to be; a node that gave no answer is asked again.
        self._end([node for node in nodes if stop or ("end", node) not in heard.answers], mark, heard)
        results = [self._settled(launch, heard, error, stop) for launch in launches]
        for one in results:
            listener(one.launch, outcome.summary_line(one))
        return results

    def hosts(self, launch: Launch) -> list[str]:
        """The nodes of a launch as they know each other."""
        return [node if self.options.use_inventory_names else self.addresses.get(node, node) for node in launch.nodes]

    def _asked(self, launch: Launch) -> dict[str, Any]:
        return {
            "hosts": self.hosts(launch),
            "gpus": launch.sweep.gpus_per_node,
            "program": plan.program(launch.sweep),
            "arguments": plan.arguments(launch),
            "env": plan.environment(launch),
            "limit": _whole_s(launch),
            "folders": list(self.options.search_path),
            "as_root": self.options.as_root,
            "ssh_args": self.options.ssh_args,
        }

    def _play(self, nodes: Sequence[str], mark: str, runs: Mapping[str, Any], longest: int = 0) -> ansible.Play:
        """Start these runs, and end all that has the mark; none of them takes longer than `longest` seconds."""
        variables = {"nccl_name": mark, "nccl_runs": runs, "nccl_group": "all"}
        return ansible.Play(PLAYBOOK, self.inventory, nodes, variables, {}, {}, len(nodes), longest + ANSIBLE_S)

    def _end(self, nodes: Sequence[str], mark: str, heard: _Heard) -> None:
        if nodes:
            ansible.run(self._play(nodes, mark, {}), heard.take, lambda: False)

    def _settled(self, launch: Launch, heard: _Heard, error: str, stop: str) -> LaunchResult:
        answer = heard.answers.get(("run", launch.nodes[0]))
        text = str((answer or {}).get("text", "")).splitlines()
        late = answer is not None and "late" in answer
        words_only = [line for line in text if outcome.size_of_row(line) is None]
        test = plan.name_in_kernel(launch.sweep)
        end = outcome.ProgramEnd(
            stop=stop or ("limit" if late else ""),
            answer=answer,
            ssh=Failure(heard.wrong.get(launch.nodes[0]) or error or "Ansible gave no answer"),
            last=[*words_only[:KEPT_LINES], *words_only[KEPT_LINES:][-KEPT_LINES:]],
            looks={node: heard.ranks(node, test) for node in launch.nodes} if late else {},
            lost=tuple(node for node in launch.nodes if heard.answers.get(("end", node), {}).get("left") != []),
            done_size=next((size for size in map(outcome.size_of_row, reversed(text)) if size), ""),
            hosts=tuple(self.hosts(launch)),
        )
        if self.options.save_output and answer is not None:
            (self.options.save_output / file_name(launch, secrets.token_hex(4))).write_text(
                "".join(f"{line}\n" for line in text)
            )
        return outcome.settle(launch, list(parse.runs(text)), end, heard.seconds(launch))


def _whole_s(launch: Launch) -> int:
    """The limit in whole seconds, as the module takes it."""
    return math.ceil(launch.sweep.limit_s)


class _Heard:
    """What the module answered: (what it was asked to do, host) -> its answer; `wrong`: host -> why there is none."""

    def __init__(self, launches: Sequence[Launch], listener: ProgressListener) -> None:
        self.answers: dict[tuple[str, str], Mapping[str, Any]] = {}
        self.wrong: dict[str, str] = {}
        self._begun, self._ended = time.monotonic(), dict[str, float]()
        self._of, self._told = {launch.nodes[0]: launch for launch in launches}, listener

    def take(self, listener: ansible.HostResult) -> None:
        if listener.result is None:
            self.wrong[listener.host] = listener.wrong
            return
        answer = listener.result["nccl"]
        self.answers[answer["do"], listener.host] = answer
        if answer["do"] == "run" and listener.host in self._of:
            self._ended[listener.host] = time.monotonic()
            how = "it has not ended within its limit" if "late" in answer else "its test has ended"
            self._told(self._of[listener.host], f"{how}: looking for what is left")

    def seconds(self, launch: Launch) -> float:
        """How long it took, as far as was heard."""
        return self._ended.get(launch.nodes[0], time.monotonic()) - self._begun

    def ranks(self, node: str, test: str) -> list[hang.Process] | None:
        """The ranks that were seen on a node; None: it gave no answer."""
        answer = self.answers.get(("look", node))
        return None if answer is None else [hang.Process(**one) for one in answer["processes"] if one["name"] == test]
