"""Fan-out over ssh: stream the engine to many hosts at the same time, over one connection each."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Any

from gpuctl.edges.processes import Processes
from gpuctl.edges.ssh import LOOK, Failure, Login, run_python
from gpuctl.engine import INCOMPLETE_HINT, INCOMPLETE_RECORD, answers, printable, script
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


def _run(  # noqa: PLR0913, PLR0917 - one job of the pool
    processes: Processes,
    target: Target,
    program: Callable[[], bytes],
    token: str,
    request: Mapping[str, Any],
    timeout_s: float,
) -> HostResult:
    started = time.monotonic()
    output = run_python(processes, _login(target), program, timeout_s)
    seconds = time.monotonic() - started
    if isinstance(output, Failure):
        return HostResult(target.name, None, printable(output.wrong), output.hint, output.unreachable, seconds)
    try:
        answer = answers.find(output, token, request)
    except answers.BadAnswer as error:
        return HostResult(target.name, wrong=str(error), hint=LOOK, seconds=seconds)
    if "error" in answer:
        return HostResult(target.name, wrong=answer["error"]["wrong"], hint=answer["error"]["hint"], seconds=seconds)
    return answered(target.name, answer, seconds)


def answered(host: str, answer: Mapping[str, Any], seconds: float = 0.0) -> HostResult:
    """The result of a host that answered; `wrong` if it could not complete the record of its changes."""
    if not answer.get("unrecorded"):
        return HostResult(host, answer=answer, seconds=seconds)
    return HostResult(host, answer, INCOMPLETE_RECORD.format(**answer), INCOMPLETE_HINT, seconds=seconds)


def _login(target: Target) -> Login:
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
