"""Entry of the function on AWS Lambda: messages of the queue, and the schedule."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Protocol

from gpuctl.edges.aws import Aws, Waits
from gpuctl.edges.public_keys import github_user
from gpuctl.reservations.queue_calls import QueueCalls
from gpuctl.reservations.rules.model import Node
from gpuctl.reservations.senders import senders
from gpuctl.reservations.service import Service
from gpuctl.reservations.stores.dynamodb import FRESH_S, DynamoStore, Report

SENDERS = "senders.json"  # beside the packages
WAITS = Waits(connect_s=2, read_s=4, attempts=2, throttled=2)  # so that a message fits into `RESERVE_S`
TABLE, QUEUE = "GPUCTL_TABLE", "GPUCTL_QUEUE_ARN"  # variables of the function


class Context(Protocol):
    """The context of an invocation, as far as it is used."""

    def get_remaining_time_in_millis(self) -> int:
        """Milliseconds until Lambda stops the function."""


def handler(event: Mapping[str, Any], context: Context) -> dict[str, Any]:
    """Answer an event of SQS or of the schedule."""
    calls, service, store = _made(Path(__file__).parents[2])
    service.nodes.doubts = dict(unknown_nodes(store.load().nodes, store.report(), service.clock()))
    return calls.handle(event, lambda: context.get_remaining_time_in_millis() / 1000)


def unknown_nodes(nodes: Mapping[str, Node], report: Report | None, now: int) -> Mapping[str, str]:
    """Nodes that take no session, and why: all of them if the service that reaches them does not report."""
    if report is None or now - report.at > FRESH_S:
        age = "never" if report is None else f"{now - report.at} s ago"
        return dict.fromkeys(nodes, f"the service of the nodes reported {age}: see that it runs")
    return report.unknown


@cache
def _made(folder: Path) -> tuple[QueueCalls, Service, DynamoStore]:
    known = senders(json.loads((folder / SENDERS).read_text(encoding="utf-8")))
    store = DynamoStore(Aws(waits=WAITS), os.environ[TABLE], None, None)
    service = Service(store, {}, lambda: int(time.time()), read_github=github_user)
    calls = QueueCalls(service, known, store, os.environ[QUEUE], lambda line: sys.stderr.write(f"{line}\n"))
    return calls, service, store
