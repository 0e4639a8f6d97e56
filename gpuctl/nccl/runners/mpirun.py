"""Runner that uses mpirun: each launch starts on its first node, as an ordinary user, and is cleaned up on all."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gpuctl.core.errors import InvalidInput
from gpuctl.domain.ranks import Process
from gpuctl.edges.ssh import Failure
from gpuctl.engine import launch_answers, mpirun_command
from gpuctl.nccl import plan
from gpuctl.nccl.judge.outcome import BROKEN_OFF
from gpuctl.nccl.launch import outcome
from gpuctl.nccl.launch.handle import WatchedLaunch
from gpuctl.nccl.model import Launch, LaunchResult
from gpuctl.nccl.runner import ProgressListener
from gpuctl.remote import payload
from gpuctl.remote.transport import PROBE_LIMIT_S, Transport

Answer = Mapping[str, Any] | None


@dataclass(frozen=True)
class MpirunOptions:
    """Options for starting launches.

    `search_path`: folders with the tests and mpirun, searched before the PATH. `use_inventory_names`: nodes reach each
    other by their inventory names instead of their addresses. `ssh_args`: additional arguments for the first node's
    ssh. `save_output`: folder for the output of each launch. `env`: additional variables for mpirun itself.
    """

    search_path: tuple[str, ...] = ()
    use_inventory_names: bool = False
    as_root: bool = False
    ssh_args: str = ""
    save_output: Path | None = None
    env: Mapping[str, str] = field(default_factory=dict)


class MpiRunner:
    """A Runner (see gpuctl/nccl/runner.py) for nodes with mpirun; `transport` reaches them from gpuctl."""

    def __init__(self, transport: Transport, options: MpirunOptions | None = None) -> None:
        self.transport, self.options = transport, options or MpirunOptions()

    def run(
        self, launches: Sequence[Launch], listener: ProgressListener, broken_off: Callable[[], bool]
    ) -> list[LaunchResult]:
        """See Runner.run."""
        refuse_shared(launches)
        self.transport.check([launch.nodes[0] for launch in launches])
        listener, running, jobs = _one_at_a_time(listener), list[_Running](), list[Future[LaunchResult]]()
        with ThreadPoolExecutor(len(launches) or 1) as pool:
            try:
                for launch in launches:
                    running.append(_Running(self, launch, listener))
                    jobs.append(pool.submit(running[-1].to_its_end))
                while not all(job.done() for job in jobs):
                    time.sleep(0.05)
                    for one, job in zip(running, jobs, strict=True):
                        one.watch(broken_off())
                        _raise_what_failed(job)
                return [job.result() for job in jobs]
            except BaseException:
                for one in running:
                    one.abandon()  # the pool waits until each has cleaned up
                raise

    def hosts(self, launch: Launch) -> list[str]:
        """Addresses of a launch's nodes, as the nodes reach each other."""
        return [node if self.options.use_inventory_names else self.transport.address(node) for node in launch.nodes]


def refuse_shared(launches: Sequence[Launch]) -> None:
    """Raise `InvalidInput` if launches share a node, or one has none."""
    used: set[str] = set()
    for launch in launches:
        twice = used.intersection(launch.nodes) or len(set(launch.nodes)) < len(launch.nodes)
        if twice or not launch.nodes:
            raise InvalidInput(
                f"run a test on {', '.join(launch.nodes) or 'no node'}", "each node can be in one run at a time"
            )
        used.update(launch.nodes)


def _one_at_a_time(listener: ProgressListener) -> ProgressListener:
    lock = threading.Lock()

    def report(launch: Launch, message: str) -> None:
        with lock:
            listener(launch, message)

    return report


def _raise_what_failed(job: Future[LaunchResult]) -> None:
    if job.done():
        job.result()


class _Running(WatchedLaunch):
    """One launch, from its start until its processes are gone."""

    def __init__(self, runner: MpiRunner, launch: Launch, listener: ProgressListener) -> None:
        super().__init__(launch, secrets.token_hex(8), runner.options.save_output, listener)
        self.runner = runner
        self.mark = f"gpuctl-{secrets.token_hex(8)} "
        self.answer: Mapping[str, Any] | None = None
        self.bad_answer: Failure | None = None
        self.stream = runner.transport.start(launch.nodes[0], self._start_program())

    def _start_program(self) -> bytes:
        launch, options = self.launch, self.runner.options
        request = {
            "mark": self.mark,
            "argv": plan.command(launch, self.runner.hosts(launch), options.as_root, options.ssh_args),
            "env": {**options.env, **mpirun_command.environment(plan.environment(launch), self.token)},
            "program": plan.program(launch.sweep),
            "folders": list(options.search_path),
            "usual": mpirun_command.FOLDERS,
            **self.runner.transport.start_options,
        }
        return payload.program("start", request)

    def end(self) -> None:
        """See WatchedLaunch."""
        self.stream.end()

    def abandon(self) -> None:
        """End it because of an error elsewhere."""
        self.stop = self.stop or BROKEN_OFF
        self.stream.end()

    def to_its_end(self) -> LaunchResult:
        """Read its output to the end, then clean up, also after an error of our own."""
        try:
            self.report("started")
            return self._read()
        except BaseException:
            self.stream.end()
            self.stream.wait(PROBE_LIMIT_S)
            self._sweep()
            raise

    def _read(self) -> LaunchResult:
        from gpuctl.nccl.parsing import parse

        runs = list(parse.runs(self._lines()))
        self.is_read()
        exit_and_error = self.stream.wait(PROBE_LIMIT_S)
        self.printed.add(exit_and_error[1].splitlines())
        clean = not self.stop and self.answer is not None and self.answer.get("code") == 0
        lost = () if clean else self._sweep()
        transport, nodes, none = self.runner.transport, self.launch.nodes, self.answer is None
        looked = any(look is not None for look in self.looks.values())
        end = outcome.ProgramEnd(
            stop=self.stop,
            answer=self.answer,
            ssh=(self.bad_answer or transport.why(nodes[0], exit_and_error, self.launch.sweep.limit_s))
            if none
            else None,
            last=self.printed.last,
            looks=self.looks,
            lost=lost,
            done_size=self.printed.done_size,
            hosts=tuple(self.runner.hosts(self.launch)),
            # After an interrupt the user does not wait for this.
            unknown="" if self.stop == BROKEN_OFF else transport.inconclusive(nodes, self.stream, looked),
        )
        look = outcome.settle(self.launch, runs, end, time.monotonic() - self.begun)
        self.report(outcome.summary_line(look))
        return look

    def _lines(self) -> Iterator[str]:
        """Yield the output for the parser, without our own last line."""
        with self.printed:
            for line in self.stream.lines():
                if line.startswith(self.mark):
                    self._take_answer(line[len(self.mark) :])
                    continue
                self.printed.take(line)
                yield line

    def _take_answer(self, text: str) -> None:
        answer = payload.read_answer(text, launch_answers.Start)
        if isinstance(answer, Failure):
            self.bad_answer = answer
        else:
            self.answer = answer

    def observe_ranks(self) -> dict[str, list[Process] | None]:
        """Current state of every node's ranks."""
        looks = self._query_all(self.launch.nodes, launch_answers.Look)
        name = plan.name_in_kernel(self.launch.sweep)
        return {
            node: None if look is None else [Process(**one) for one in look["processes"] if one["name"] == name]
            for node, look in looks.items()
        }

    def _sweep(self) -> tuple[str, ...]:
        """End remaining processes on every node; returns the nodes where this cannot be confirmed.

        A node without an answer is queried again over a new connection, because a shared connection may be broken.
        """
        silent = {node for node, look in self.looks.items() if look is None}
        nodes = self.launch.nodes
        ends = self._query_all(nodes, launch_answers.End, fresh=silent)
        again = [node for node in nodes if ends[node] is None and node not in silent]
        ends |= self._query_all(again, launch_answers.End, fresh=set(again))
        return tuple(node for node in nodes if (end := ends[node]) is None or end["left"])

    def _query_all(self, nodes: Sequence[str], shape: type, fresh: Collection[str] = ()) -> dict[str, Answer]:
        """Answer of each node, None without one; nodes in `fresh` are queried over a new connection."""
        variable = f"{mpirun_command.VARIABLE}={self.token}"
        request = {"mark": self.mark, "variable": variable, "end": shape is launch_answers.End}
        program = payload.program("process_tree", request)

        def query(node: str) -> Answer:
            reply = self.runner.transport.query(node, program, node in fresh)
            if isinstance(reply, Failure):
                return None
            answer = payload.answer(reply, self.mark, shape)
            if isinstance(answer, Failure):
                self.report(f"{node}: its processes are unknown: {answer.wrong}")
                return None
            return answer

        with ThreadPoolExecutor(min(64, len(nodes)) or 1) as pool:
            return dict(zip(nodes, pool.map(query, nodes), strict=True))
