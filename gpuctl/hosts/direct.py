"""The direct carrier: the same engine, streamed to all hosts at once, one connection each."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Any

from gpuctl.edges.processes import Processes
from gpuctl.edges.ssh import Failure, Login, run_python
from gpuctl.engine import answers, script
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
    """Visit every host, `forks` at a time; `seen` is called for each as it answers. In the order of the targets."""
    token = f"gpuctl-{secrets.token_hex(8)} "
    requests = {target.name: request_of(target) for target in targets}
    # Hosts with equal requests share one program: it is the largest thing a run holds.
    texts = {name: json.dumps(request) for name, request in requests.items()}
    processes = Processes()
    visits: dict[str, Visit] = {}
    # The programs are put together while the connections are being opened.
    with ThreadPoolExecutor(1) as maker, ThreadPoolExecutor(max_workers=min(forks, len(targets)) or 1) as pool:
        programs = {text: maker.submit(script, text, token) for text in set(texts.values())}
        jobs = [
            pool.submit(_visit, processes, t, programs[texts[t.name]].result, token, requests[t.name]["action"], limit)
            for t in targets
        ]
        try:
            for job in as_completed(jobs):
                visit = job.result()
                visits[visit.host] = visit
                seen(visit)
        except KeyboardInterrupt:
            processes.stop()
            pool.shutdown(cancel_futures=True)
            raise
    return [visits[target.name] for target in targets]


def _visit(  # noqa: PLR0913, PLR0917 - one job of the pool
    processes: Processes, target: Target, program: Callable[[], bytes], token: str, action: str, limit: float
) -> Visit:
    started = time.monotonic()
    output = run_python(processes, _login(target), program, limit)
    seconds = time.monotonic() - started
    if isinstance(output, Failure):
        return Visit(target.name, None, answers.printable(output.wrong), output.hint, output.unreachable, seconds)
    try:
        answer = answers.find(output, token, action)
    except answers.BadAnswer as error:
        return Visit(target.name, wrong=str(error), hint="log in by hand and look", seconds=seconds)
    if "error" in answer:
        return Visit(target.name, wrong=answer["error"]["wrong"], hint=answer["error"]["hint"], seconds=seconds)
    return Visit(target.name, answer=answer, seconds=seconds)


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
