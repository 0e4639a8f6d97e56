"""Collect the facts an NCCL run depends on, in one trip to each host, and test which hosts can log in to which."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpuctl.core.errors import InvalidInput
from gpuctl.hosts.fan_out import run_on_all
from gpuctl.hosts.model import HostResult, Target
from gpuctl.nccl.preflight.facts_file import Fleet
from gpuctl.nccl.topology.login_checks import ALONE, peers

# Each request contains the program, half a megabyte; this many are held in memory at a time.
AT_A_TIME = 128


@dataclass(frozen=True)
class FactsOptions:
    """Options of a collection of facts.

    `search_path`: folders with the tests and mpirun, besides the usual ones. `use_inventory_names`: nodes reach each
    other by their inventory names. `ssh_args`: additional arguments for ssh between nodes. `limit` in seconds for one
    host. `only`: subjects of facts/gather.py, empty for all. `apart`: nodes do not test whether they reach each other.
    """

    search_path: tuple[str, ...] = ()
    use_inventory_names: bool = False
    ssh_args: tuple[str, ...] = ()
    forks: int = 64
    limit: float = 120.0
    only: tuple[str, ...] = ()
    apart: bool = False


def split_ssh_args(text: str) -> tuple[str, ...]:
    """Split the value of --ssh-args; `InvalidInput` for an unclosed quotation."""
    try:
        return tuple(shlex.split(text))
    except ValueError as error:
        raise InvalidInput(f"use --ssh-args {text!r}", str(error), "close the quotation") from error


def ask(hosts: Sequence[Target], options: FactsOptions, on_result: Callable[[HostResult], None]) -> Fleet:
    """Collect facts of every host; hosts that do not answer are `unasked`, with the reason. Results are passed on."""
    direct = [host for host in hosts if not host.needs_ansible]
    requested = requests(
        {host.name: host.name if options.use_inventory_names else host.address or host.name for host in direct}, options
    )
    results = [
        result
        for start in range(0, len(direct), AT_A_TIME)
        for result in run_on_all(
            direct[start : start + AT_A_TIME],
            lambda host: requested[host.name],
            forks=options.forks,
            timeout_s=options.limit,
            on_result=on_result,
        )
    ]
    return fleet_of(hosts, {result.host: result for result in results})


def requests(addresses: Mapping[str, str], options: FactsOptions) -> dict[str, dict[str, Any]]:
    """Build the request for each node. `addresses`: node -> its address for other nodes; the first node launches."""
    plan = dict.fromkeys(addresses, ALONE) if options.apart else peers(list(addresses))
    more = {"folders": list(options.search_path), "ssh_args": list(options.ssh_args)}
    only = {"only": list(options.only)} if options.only else {}
    return {
        node: {
            **{test: [{"name": n, "address": addresses[n]} for n in nodes] for test, nodes in tests._asdict().items()},
            "action": "facts",
            "subjects": "nccl",
            **more,
            **only,
        }
        for node, tests in plan.items()
    }


def fleet_of(hosts: Sequence[Target], results: Mapping[str, HostResult]) -> Fleet:
    """Facts and failures in the order of the hosts."""
    nodes: dict[str, Mapping[str, Any]] = {}
    unasked: dict[str, str] = {}
    for host in hosts:
        result = results.get(host.name)
        if result is None:
            unasked[host.name] = f"only Ansible can reach it: {host.needs_ansible}"
        elif result.answer is None or "facts" not in result.answer:
            unasked[host.name] = result.wrong or "its answer has no facts"
        else:
            nodes[host.name] = {**result.answer["facts"], "address": host.address or host.name}
    return Fleet(nodes, unasked)
