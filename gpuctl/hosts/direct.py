"""The direct carrier: the same engine, streamed to all hosts at once, one connection each."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Any

from gpuctl.edges.processes import Processes
from gpuctl.edges.ssh import Failure, Login, run_python
from gpuctl.engine import answer, script
from gpuctl.hosts.model import Target, Visit

Seen = Callable[[Visit], None]


def visit_all(
    targets: Sequence[Target],
    request_of: Callable[[Target], Mapping[str, Any]],
    *,
    forks: int,
    limit: float,
    seen: Seen,
) -> list[Visit]:
    """Visit every host, `forks` at a time; `seen` hears of each as it answers. In the order of the targets."""
    token = f"gpuctl-{secrets.token_hex(8)} "
    # Hosts that are asked the same share one program: it is the largest thing a run holds.
    asked = {target.name: json.dumps(request_of(target)) for target in targets}
    processes = Processes()
    found: dict[str, Visit] = {}
    # The programs are put together while the connections are being opened.
    with ThreadPoolExecutor(1) as maker, ThreadPoolExecutor(max_workers=min(forks, len(targets)) or 1) as pool:
        programs = {request: maker.submit(script, request, token) for request in set(asked.values())}
        jobs = [pool.submit(_visit, processes, t, programs[asked[t.name]].result, token, limit) for t in targets]
        try:
            for visit in _as_they_come(jobs):
                found[visit.host] = visit
                seen(visit)
        except KeyboardInterrupt:
            processes.stop()
            pool.shutdown(cancel_futures=True)
            raise
    return [found[target.name] for target in targets]


def _as_they_come(jobs: Iterable[Any]) -> Iterable[Visit]:
    return (job.result() for job in as_completed(jobs))


def _visit(processes: Processes, target: Target, program: Callable[[], bytes], token: str, limit: float) -> Visit:
    started = time.monotonic()
    said = run_python(processes, _login(target), program, limit)
    seconds = time.monotonic() - started
    if isinstance(said, Failure):
        return Visit(target.name, None, said.wrong, said.hint, said.unreachable, seconds)
    told = answer(said, token)
    if told is None:
        return Visit(
            target.name,
            wrong="it ran our program and gave no answer",
            hint="log in by hand and look",
            seconds=seconds,
        )
    if "error" in told:
        return Visit(target.name, wrong=told["error"]["wrong"], hint=told["error"]["hint"], seconds=seconds)
    return Visit(target.name, answer=told, seconds=seconds)


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
