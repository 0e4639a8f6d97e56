"""Use of the GPUs of an inventory's hosts: one trip to each over ssh, all at once."""

from __future__ import annotations

import getpass
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from gpuctl.core.errors import GpuctlError
from gpuctl.core.redact import removed
from gpuctl.hosts.fan_out import run_on_all
from gpuctl.hosts.model import HostResult, Target
from gpuctl.nodes import facts_file, node_use, readings, readings_file
from gpuctl.nodes.model import Facts, Fleet, Node, nothing_read

REQUEST = {"action": "facts", "subjects": "gpu use"}


def ask(hosts: Sequence[Target], forks: int, timeout_s: float, on_result: Callable[[HostResult], None]) -> Fleet:
    """Facts of every host, without secrets in command lines; hosts that do not answer are `unasked`."""
    direct = [host for host in hosts if not host.needs_ansible]
    results: dict[str, HostResult] = {}

    def keep(result: HostResult) -> None:
        result = redacted(result)  # while other hosts still answer
        results[result.host] = result
        on_result(result)

    run_on_all(direct, lambda _: REQUEST, forks=forks, timeout_s=timeout_s, on_result=keep)
    nodes: dict[str, Mapping[str, Any]] = {}
    unasked: dict[str, str] = {}
    for host in hosts:
        result = results.get(host.name)
        if result is None:
            unasked[host.name] = f"only Ansible can reach it: {host.needs_ansible}"
        elif result.answer is None:
            unasked[host.name] = result.wrong
        else:
            nodes[host.name] = result.answer["use"]
    return Fleet(nodes, unasked, round(time.time()))


def ask_one(host: Target, timeout_s: float) -> Facts:
    """Facts of a node that is to be acted on; `GpuctlError` if it does not answer."""
    fleet = ask([host], 1, timeout_s, lambda _: None)
    if host.name in fleet.unasked:
        raise GpuctlError(f"read {host.name}", fleet.unasked[host.name], "check that it can be reached")
    return fleet.nodes[host.name]


def me() -> frozenset[str]:
    """The user of this process, unless it is root, whose processes may be anybody's."""
    return frozenset({getpass.getuser()}) - {"root"}


def redacted(result: HostResult) -> HostResult:
    """Result whose answer is the facts, without secrets."""
    if result.answer is None:
        return result
    return replace(result, answer={"use": without_secrets(result.answer["facts"]["use"])})


def without_secrets(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Facts whose command lines and process names have no secrets: they may be printed and saved."""
    if nothing_read(facts):
        return dict(facts)
    processes = {
        pid: {**one, "command": _redacted(one["command"]), "name": _redacted(one["name"])}
        for pid, one in (facts["processes"] or {}).items()
    }
    gpus = facts["gpus"]
    named = gpus and [{**gpu, **{key: _named(gpu[key]) for key in ("processes", "displays")}} for gpu in gpus]
    return {**facts, "processes": processes, "gpus": named or gpus}


def _named(rows: list[dict[str, Any]] | None) -> list[dict[str, Any]] | None:
    return rows and [{**row, "name": _redacted(row["name"])} for row in rows]


@lru_cache(maxsize=4096)  # the ranks of a job have one command line
def _redacted(text: str | None) -> str | None:
    return None if text is None else removed(text)[0]


def load(paths: Sequence[Path]) -> list[Fleet]:
    """Recorded facts, the oldest first. `InvalidInput` for a file that has none."""
    stems = Counter(path.stem for path in paths)
    read = [facts_file.read(path, "" if stems[path.stem] == 1 else str(path)) for path in paths]
    fleets = [
        Fleet({name: without_secrets(facts) for name, facts in one.nodes.items()}, one.unasked, one.taken)
        for one in read
    ]
    return sorted(fleets, key=lambda fleet: fleet.taken)


def use(fleets: Sequence[Fleet], *, recorded: bool, notify: Callable[[str], None]) -> list[Node]:
    """Use of all nodes, each by its newest facts; the earlier ones tell how long a GPU has not worked.

    Of facts that were not `recorded`, the readings are kept for the next run; a disk that does not take them is no
    reason to withhold what is known.
    """
    streaks = {} if recorded else readings_file.load()
    newest: dict[str, Node] = {}
    for fleet in fleets:
        nodes = [node_use.node(name, facts, me()) for name, facts in fleet.nodes.items()]
        streaks = readings.update(streaks, nodes, fleet.taken)
        lost = [node_use.unasked(name, reason) for name, reason in fleet.unasked.items()]
        newest |= {node.name: node for node in [*nodes, *lost]}
    if not recorded:
        try:
            readings_file.save(streaks)
        except GpuctlError as error:
            notify(f"{error}; {error.hint}")
    return [readings.with_quiet(node, streaks) for node in newest.values()]
