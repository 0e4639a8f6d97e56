"""Fan-out over ssh: stream the engine to many hosts at the same time, over one connection each."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from types import TracebackType
from typing import Any

from gpuctl.edges.processes import Processes, SecondTurn
from gpuctl.edges.ssh import LOOK, Failure, Login, run_in_turns, run_python
from gpuctl.engine import CHANGE, INCOMPLETE_HINT, INCOMPLETE_RECORD, answers, printable, script
from gpuctl.hosts.model import HostResult, Target

OnResult = Callable[[HostResult], None]


def run_on_all(
    targets: Sequence[Target],
    request_of: Callable[[Target], Mapping[str, Any]],
    *,
    forks: int,
    timeout_s: float,
    on_result: OnResult,
) -> list[HostResult]:
    """Send each host its request, `forks` at a time; return the results in the order of the targets.

    `on_result` receives each result as it arrives. Ctrl-C ends all connections.
    """
    token = f"gpuctl-{secrets.token_hex(8)} "
    requests = {target.name: request_of(target) for target in targets}
    # Hosts with equal requests share one program: it is the largest object of a run.
    texts = {name: json.dumps(request) for name, request in requests.items()}
    processes = Processes()
    results: dict[str, HostResult] = {}
    # The programs are built while the connections open.
    with ThreadPoolExecutor(1) as builder, ThreadPoolExecutor(max_workers=min(forks, len(targets)) or 1) as pool:
        programs = {text: builder.submit(script, text, token) for text in set(texts.values())}
        jobs = [
            pool.submit(_run, processes, t, programs[texts[t.name]].result, token, requests[t.name], timeout_s)
            for t in targets
        ]
        try:
            for job in as_completed(jobs):
                result = job.result()
                results[result.host] = result
                on_result(result)
        except KeyboardInterrupt:
            processes.stop()
            pool.shutdown(cancel_futures=True)
            raise
    return [results[target.name] for target in targets]


class OpenVisits:
    """Visits that compare hosts and then change some of them, with the same program over the same connection.

    A change needs no second login and no second start of Python. At the end of the context, programs that were not
    asked to change their host end without a change.
    """

    def __init__(
        self, targets: Sequence[Target], request_of: Callable[[Target], Mapping[str, Any]], timeout_s: float
    ) -> None:
        self._targets, self._timeout_s = targets, timeout_s
        self._request_of = request_of
        self._token = f"gpuctl-{secrets.token_hex(8)} "
        self._processes = Processes()
        self._compared: dict[str, Future[HostResult]] = {target.name: Future() for target in targets}
        self._decisions: dict[str, Future[float | None]] = {target.name: Future() for target in targets}
        self._changed: dict[str, Future[HostResult | None]] = {}
        self._pool = ThreadPoolExecutor(len(targets) or 1)
        self._builder = ThreadPoolExecutor(1)

    def __enter__(self) -> OpenVisits:
        texts = {target.name: json.dumps(self._request_of(target)) for target in self._targets}
        programs = {t: self._builder.submit(script, t, self._token, stays=True) for t in set(texts.values())}
        for target in self._targets:
            self._changed[target.name] = self._pool.submit(self._visit, target, programs[texts[target.name]].result)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is not None:
            self._processes.stop()
        for decision in self._decisions.values():
            if not decision.done():
                decision.set_result(None)
        self._pool.shutdown()
        self._builder.shutdown()

    def compare(self, on_result: OnResult) -> list[HostResult]:
        """The answers of all hosts in check mode, in the order of the targets; `on_result` gets each as it arrives."""
        for future in as_completed(self._compared.values()):
            on_result(future.result())
        return [self._compared[target.name].result() for target in self._targets]

    def change(self, targets: Sequence[Target], timeout_s: float, on_result: OnResult) -> list[HostResult]:
        """Change hosts that have been compared, once; return their results in the order of these targets."""
        results: dict[str, HostResult] = {}
        chosen = {target.name for target in targets}
        for name, decision in self._decisions.items():
            decision.set_result(timeout_s if name in chosen else None)
        for future in as_completed([self._changed[target.name] for target in targets]):
            result = future.result()
            if result is not None:
                results[result.host] = result
                on_result(result)
        lost = [target for target in targets if target.name not in results]  # their connections ended meanwhile
        if lost:
            again = run_on_all(
                lost,
                lambda target: {**self._request_of(target), "check": False},
                forks=len(lost),
                timeout_s=timeout_s,
                on_result=on_result,
            )
            results.update({result.host: result for result in again})
        return [results[target.name] for target in targets]

    def _visit(self, target: Target, program: Callable[[], bytes]) -> HostResult | None:
        """Both turns of one host; return the result of its change, None if it got no second turn."""
        compared, request = self._compared[target.name], self._request_of(target)
        started = [time.monotonic()]

        def decide(output: bytes) -> tuple[bytes, float] | None:
            compared.set_result(result_of(target.name, output, self._token, request, time.monotonic() - started[0]))
            limit_s = self._decisions[target.name].result()
            started.append(time.monotonic())
            return None if limit_s is None else (CHANGE, limit_s)

        try:
            turn = SecondTurn(self._has_answered, decide)
            sent, output = run_in_turns(self._processes, login_of(target), program, self._timeout_s, turn)
            result = result_of(target.name, output, self._token, request, time.monotonic() - started[-1])
        except BaseException as error:
            if not compared.done():
                compared.set_exception(error)
            raise
        if not compared.done():
            compared.set_result(result)
        return result if sent else None

    def _has_answered(self, output: bytearray) -> bool:
        at = output.rfind(b"\n" + self._token.encode())
        return at >= 0 and output.find(b"\n", at + 1) > 0


def _run(  # noqa: PLR0913, PLR0917 - one job of the pool
    processes: Processes,
    target: Target,
    program: Callable[[], bytes],
    token: str,
    request: Mapping[str, Any],
    timeout_s: float,
) -> HostResult:
    started = time.monotonic()
    output = run_python(processes, login_of(target), program, timeout_s)
    return result_of(target.name, output, token, request, time.monotonic() - started)


def result_of(host: str, output: bytes | Failure, token: str, request: Mapping[str, Any], seconds: float) -> HostResult:
    """The result of one visit: the answer in a host's output, or why there is none."""
    if isinstance(output, Failure):
        return HostResult(host, None, printable(output.wrong), output.hint, output.unreachable, seconds)
    try:
        answer = answers.find(output, token, request)
    except answers.BadAnswer as error:
        return HostResult(host, wrong=str(error), hint=LOOK, seconds=seconds)
    if "error" in answer:
        return HostResult(host, wrong=answer["error"]["wrong"], hint=answer["error"]["hint"], seconds=seconds)
    return answered(host, answer, seconds)


def answered(host: str, answer: Mapping[str, Any], seconds: float = 0.0) -> HostResult:
    """The result of a host that answered; `wrong` if it could not complete the record of its changes."""
    if not answer.get("unrecorded"):
        return HostResult(host, answer=answer, seconds=seconds)
    return HostResult(host, answer, INCOMPLETE_RECORD.format(**answer), INCOMPLETE_HINT, seconds=seconds)


def login_of(target: Target) -> Login:
    """Connection of a host over ssh."""
    return Login(
        address=target.address or target.name,
        port=target.port,
        user=target.user,
        key=target.key,
        args=target.ssh_args,
        sudo_to=target.become_user if target.become else "",
        python=target.python,
        local=target.local,
    )
