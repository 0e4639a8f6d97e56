"""Run a program on nodes over ssh, all at once, or log in to one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from typing import NoReturn

from gpuctl.core.redact import removed
from gpuctl.edges import ssh, terminal
from gpuctl.edges.processes import Processes
from gpuctl.edges.programs import need
from gpuctl.edges.ssh import SSH_FAILED, Failure
from gpuctl.engine import printable
from gpuctl.hosts.fan_out import login_of
from gpuctl.hosts.model import Target
from gpuctl.workflows.recorded_act import recorded


@dataclass(frozen=True)
class Ran:
    """Result on one node. `code`: exit code of the program; None if it did not run to its end, with the reason."""

    node: str
    code: int | None
    out: str = ""
    wrong: str = ""


def run_everywhere(
    hosts: Sequence[Target], argv: Sequence[str], forks: int, timeout_s: float, on_result: Callable[[Ran], None]
) -> tuple[list[Ran], str]:
    """Run a program on all hosts, with a record around it; results in the order of the hosts, and the run's name.

    Its standard output and error are one text; secrets in its arguments do not reach the record.
    """
    shown = removed(" ".join(argv))[0]
    processes = Processes()
    results: dict[str, Ran] = {}
    with recorded(["nodes", "exec", shown], {host.name: {"act": "exec", "command": shown} for host in hosts}) as entry:
        with ThreadPoolExecutor(min(forks, len(hosts)) or 1) as pool:
            jobs = [pool.submit(_run, processes, host, argv, timeout_s) for host in hosts]
            try:
                for job in as_completed(jobs):
                    ran = job.result()
                    results[ran.node] = ran
                    on_result(ran)
                    status = "unknown" if ran.code is None else f"exit code {ran.code}"
                    entry.update(ran.node, status=status, wrong=ran.wrong)
            except BaseException:
                processes.stop()
                pool.shutdown(cancel_futures=True)
                raise
        ordered = [results[host.name] for host in hosts]
        entry.exit_code = exit_code(ordered)
    return ordered, entry.name


def exit_code(results: Sequence[Ran]) -> int:
    """3 if it did not run to its end somewhere, 1 if its exit code is not 0 somewhere, else 0."""
    if any(ran.code is None for ran in results):
        return 3
    return int(any(ran.code for ran in results))


def _run(processes: Processes, host: Target, argv: Sequence[str], timeout_s: float) -> Ran:
    login = login_of(host)
    if host.needs_ansible:
        return Ran(host.name, None, wrong=f"only Ansible can reach it: {host.needs_ansible}")
    try:
        done = processes.run(ssh.program(login, argv), b"", timeout_s)
    except OSError as error:
        return Ran(host.name, None, wrong=f"{error.filename}: {error.strerror}")
    text = done.out.decode(errors="replace") + done.err
    # 255 is ssh's own exit code; of a program on the host, it comes without ssh's message.
    lost = done.code == SSH_FAILED and not login.local and ssh.known_failure(done.err, "", login.address) is not None
    if done.code is None or done.excess or lost:
        failure: Failure = ssh.explain(login, done, timeout_s)
        messages = _unquoted(done.err, failure.wrong) if lost else done.err
        return Ran(host.name, None, done.out.decode(errors="replace") + messages, failure.wrong)
    return Ran(host.name, done.code, text)


def _unquoted(messages: str, wrong: str) -> str:
    """Messages without the last one, if the reason quotes it."""
    rest, _, last = messages.rstrip().rpartition("\n")
    return rest if printable(last.strip()) in wrong else messages


def log_in(host: Target, argv: Sequence[str]) -> NoReturn:
    """Become an ssh session on a host, in this terminal."""
    login = login_of(host)
    if not login.local:
        need("ssh")
    terminal.become(ssh.program(login, argv, terminal=True))
