"""Runner that uses the playbook nccl.yml: for nodes that only Ansible can reach (a password, a special bastion)."""

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
from gpuctl.engine import launch_answers, typed_json
from gpuctl.nccl import plan
from gpuctl.nccl.launch import outcome
from gpuctl.nccl.launch.output import KEPT_LINES, file_name
from gpuctl.nccl.model import Launch, LaunchResult
from gpuctl.nccl.parsing import parse
from gpuctl.nccl.runner import ProgressListener
from gpuctl.nccl.runners.mpirun import MpirunOptions, refuse_shared

PLAYBOOK = "gpuctl.fleet.nccl"
ANSIBLE_S = 120  # overhead of Ansible besides the test: connections, modules, other hosts


class AnsibleRunner:
    """A Runner (see gpuctl/nccl/runner.py) through ansible-runner. It reports only the start and end of each launch.

    `addresses`: node -> its address for other nodes.
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
        mark, answers = secrets.token_hex(8), _Answers(launches, listener)
        runs = {launch.nodes[0]: self._request(launch) for launch in launches}
        nodes = [node for launch in launches for node in launch.nodes]
        longest = max(_whole_s(launch) for launch in launches)
        for launch in launches:
            listener(launch, "started through Ansible")
        try:
            error = ansible.run(self._play(nodes, mark, runs, longest), answers.take, broken_off)
            stop = "broken off" if broken_off() else ""
        except BaseException:
            self._end(nodes, mark, _Answers((), listener))
            raise
        # End everything that was started and confirm it; nodes without an answer are queried again.
        self._end([node for node in nodes if stop or ("end", node) not in answers.answers], mark, answers)
        results = [self._settled(launch, answers, error, stop) for launch in launches]
        for one in results:
            listener(one.launch, outcome.summary_line(one))
        return results

    def hosts(self, launch: Launch) -> list[str]:
        """Addresses of a launch's nodes, as the nodes reach each other."""
        return [node if self.options.use_inventory_names else self.addresses.get(node, node) for node in launch.nodes]

    def _request(self, launch: Launch) -> dict[str, Any]:
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
        """Play that starts these runs and ends all processes with the mark; `longest`: limit of the runs in seconds."""
        variables = {"nccl_name": mark, "nccl_runs": runs, "nccl_group": "all"}
        return ansible.Play(PLAYBOOK, self.inventory, nodes, variables, {}, {}, len(nodes), longest + ANSIBLE_S)

    def _end(self, nodes: Sequence[str], mark: str, answers: _Answers) -> None:
        if nodes:
            ansible.run(self._play(nodes, mark, {}), answers.take, lambda: False)

    def _settled(self, launch: Launch, answers: _Answers, error: str, stop: str) -> LaunchResult:
        answer = answers.answers.get(("run", launch.nodes[0]))
        text = str((answer or {}).get("text", "")).splitlines()
        late = answer is not None and "late" in answer
        messages = [line for line in text if outcome.size_of_row(line) is None]
        test = plan.name_in_kernel(launch.sweep)
        end = outcome.ProgramEnd(
            stop=stop or ("limit" if late else ""),
            answer=answer,
            ssh=Failure(answers.wrong.get(launch.nodes[0]) or error or "Ansible gave no answer"),
            last=[*messages[:KEPT_LINES], *messages[KEPT_LINES:][-KEPT_LINES:]],
            looks={node: answers.ranks(node, test) for node in launch.nodes} if late else {},
            lost=tuple(node for node in launch.nodes if answers.answers.get(("end", node), {}).get("left") != []),
            done_size=next((size for size in map(outcome.size_of_row, reversed(text)) if size), ""),
            hosts=tuple(self.hosts(launch)),
        )
        if self.options.save_output and answer is not None:
            (self.options.save_output / file_name(launch, secrets.token_hex(4))).write_text(
                "".join(f"{line}\n" for line in text)
            )
        return outcome.settle(launch, list(parse.runs(text)), end, answers.seconds(launch))


def _whole_s(launch: Launch) -> int:
    """Time limit in whole seconds, as the module takes it."""
    return math.ceil(launch.sweep.limit_s)


class _Answers:
    """Answers of the module: (action, host) -> answer; `wrong`: host -> reason why there is none."""

    def __init__(self, launches: Sequence[Launch], listener: ProgressListener) -> None:
        self.answers: dict[tuple[str, str], Mapping[str, Any]] = {}
        self.wrong: dict[str, str] = {}
        self._begun, self._ended = time.monotonic(), dict[str, float]()
        self._launches, self._listener = {launch.nodes[0]: launch for launch in launches}, listener

    def take(self, host: ansible.HostResult) -> None:
        if host.result is None:
            self.wrong[host.host] = host.wrong
            return
        try:
            answer: Mapping[str, Any] = typed_json.read(host.result["nccl"], launch_answers.Test, "nccl")
        except typed_json.Misfit as error:
            self.wrong[host.host] = f"its answer makes no sense: {error}"
            return
        self.answers[answer["do"], host.host] = answer
        if answer["do"] == "run" and host.host in self._launches:
            self._ended[host.host] = time.monotonic()
            state = "it did not end within its limit" if "late" in answer else "its test has ended"
            self._listener(self._launches[host.host], f"{state}: looking for remaining processes")

    def seconds(self, launch: Launch) -> float:
        """Duration of a launch in seconds, as far as reported."""
        return self._ended.get(launch.nodes[0], time.monotonic()) - self._begun

    def ranks(self, node: str, test: str) -> list[hang.Process] | None:
        """Ranks observed on a node; None if it gave no answer."""
        answer = self.answers.get(("look", node))
        return None if answer is None else [hang.Process(**one) for one in answer["processes"] if one["name"] == test]
