"""python -m bench.reservations: a simulated year, many histories, 1,000 requests at once, and a queue of 500.

The year runs the rules that the service runs. FIFO and "each that fits" (the rule of pytorch's GPU dev servers: a pass
over the queue by age that starts what fits) get the same requests on the same nodes.
"""

from __future__ import annotations

import argparse
import heapq
import math
import random
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gpuctl.edges.unix_socket import Peer, call, serving
from gpuctl.reservations.demo import SimulatedNode
from gpuctl.reservations.rules import expiry, plan, reports
from gpuctl.reservations.rules.commands import Cancel, Message, Submit, handle
from gpuctl.reservations.rules.decision import Draft, apply
from gpuctl.reservations.rules.forecast import forecast
from gpuctl.reservations.rules.model import DAY, HOUR, Book, Caller, Limits, Node, Site, State
from gpuctl.reservations.rules.pool import Pool
from gpuctl.reservations.rules.requests import Request
from gpuctl.reservations.service import Service
from gpuctl.reservations.stores.sqlite import SqliteStore
from tests.rig.reservations.world import ALL, World

NODES, GPUS, PEOPLE, GROUPS = 16, 8, 200, 8
SIZES = {1: 0.38, 2: 0.2, 4: 0.17, 8: 0.17, 16: 0.05, 32: 0.02, 64: 0.01}
MEAN_USE_S = 5.52 * HOUR  # of the lengths and cancellations below
OVERHEAD_S = 60  # to prepare and to clear a session, in each of the simulations


@dataclass(frozen=True)
class Job:
    """A request of the simulated year. `used_s`: its owner cancels after so long."""

    at: int
    person: int
    gpus: int
    length_s: int
    used_s: int

    @property
    def nodes(self) -> int:
        return max(1, self.gpus // GPUS)


def jobs(days: int, load: float, seed: int = 1) -> list[Job]:
    """Requests by weekday and hour; a few people ask for much more than the others."""
    draw = random.Random(seed)  # noqa: S311 - a simulation
    weights = [draw.paretovariate(1.2) for _ in range(PEOPLE)]
    mean = sum(gpus * share for gpus, share in SIZES.items()) * MEAN_USE_S
    per_day = load * NODES * GPUS * DAY / mean
    result = []
    for day in range(days):
        factor = 0.35 if day % 7 in (5, 6) else 1.26
        for _ in range(round(per_day * factor)):
            at = day * DAY + int(draw.triangular(7, 24, 13) * HOUR)
            gpus = draw.choices([*SIZES], [*SIZES.values()])[0]
            length_s = int(draw.choice([0.5, 1, 2, 4, 8, 12, 24]) * HOUR)
            used_s = length_s if draw.random() < 0.5 else max(300, int(length_s * draw.random()))
            result.append(Job(at, draw.choices(range(PEOPLE), weights)[0], gpus, length_s, used_s))
    return sorted(result, key=lambda job: job.at)


@dataclass(frozen=True)
class Start:
    """A job and its wait."""

    job: Job
    wait_s: int


# ---- the rules -------------------------------------------------------------------------------------------------------


class Ours:
    """The library in full: commands, plan, reports and expiry, one decision after the other."""

    def __init__(self, limits: Limits) -> None:
        nodes = {f"n{number}": Node(f"n{number}", "h100", (None,) * GPUS) for number in range(NODES)}
        self.book = Book(Site(limits), nodes)
        self.jobs: dict[str, Job] = {}
        self.starts: list[Start] = []
        self.moved = 0
        self._events: list[tuple[int, int, str, str]] = []
        self._number = 0

    def run(self, todo: Sequence[Job]) -> list[Start]:
        for number, job in enumerate(todo):
            self._until(job.at)
            self._submit(number, job)
        while self._events:
            self._until(self._events[0][0])
        return self.starts

    def _until(self, at: int) -> None:
        while self._events and self._events[0][0] <= at:
            now, freed = self._events[0][0], False
            while self._events and self._events[0][0] == now:
                _, _, event, id_ = heapq.heappop(self._events)
                self._event(now, event, id_)
                freed |= event == "cleared"
            if freed:
                self._plan(now)

    def _submit(self, number: int, job: Job) -> None:
        caller = Caller(f"p{job.person}", f"g{job.person % GROUPS}")
        message = Message(Submit(Request(job.gpus, "h100", job.length_s)), caller, str(number))
        decision, answer = handle(self.book, message, job.at, None)
        if not answer.accepted:
            raise RuntimeError(answer.message)
        self.book = apply(self.book, decision.changes)
        self.jobs[answer.reservation] = job
        self._plan(job.at)

    def _plan(self, now: int) -> None:
        if not any(row.state is State.QUEUED for row in self.book.reservations.values()):
            return
        draft = Draft(self.book, now, "planner")
        plan.plan(draft)
        self.book = apply(self.book, draft.decision().changes)
        for entry in draft.entries:
            self.moved += entry.action == "move promise"
            if entry.after == State.PREPARING:
                job = self.jobs[entry.subject]
                self.starts.append(Start(job, now - job.at))
                self._push(now + OVERHEAD_S // 2, "ready", entry.subject)

    def _event(self, now: int, event: str, id_: str) -> None:
        draft, row = Draft(self.book, now, "simulation"), self.book.reservations[id_]
        if event == "ready":
            for slot in row.slots:
                reports.session_ready(draft, id_, row.attempt, slot.node)
            job, row = self.jobs[id_], draft.book.reservations[id_]
            cancels = job.used_s < job.length_s
            self._push(now + job.used_s if cancels else row.expires_at or 0, "cancel" if cancels else "warn", id_)
        elif event == "cancel":
            message = Message(Cancel(id_), Caller(row.person), f"cancel {id_}")
            decision, _ = handle(self.book, message, now, None)
            self.book = apply(self.book, decision.changes)
            self._push(now + OVERHEAD_S // 2, "cleared", id_)
            return
        elif event == "warn":
            [warning] = [due for due in expiry.warnings_due(self.book, now) if due.reservation == id_]
            expiry.record_warning(draft, warning, 1)
            self._push(now + self.book.site.limits.grace_s, "expire", id_)
        elif event == "expire":
            expiry.tick(draft)
            self._push(now + OVERHEAD_S // 2, "cleared", id_)
        else:
            for slot in row.slots:
                reports.session_cleared(draft, id_, row.attempt, slot.node)
        self.book = apply(self.book, draft.decision().changes)

    def _push(self, at: int, event: str, id_: str) -> None:
        self._number += 1
        heapq.heappush(self._events, (at, self._number, event, id_))


def simple(todo: Sequence[Job], pass_others: bool) -> list[Start]:
    """By age: start what fits. `pass_others`: a request may pass those before it that do not fit."""
    pool = Pool({f"n{number}": [0] * GPUS for number in range(NODES)}, {}, 0)
    waiting: list[Job] = []
    ends: list[tuple[int, int, list[tuple[str, int, int]]]] = []
    starts: list[Start] = []

    def start(now: int) -> None:
        free = pool.free_gpus()
        for job in list(waiting):
            slots = pool.fit(job.nodes, min(job.gpus, GPUS)) if job.gpus <= free else None
            if slots is not None:
                end = now + job.used_s + OVERHEAD_S + (120 if job.used_s == job.length_s else 0)
                heapq.heappush(ends, (end, len(starts), pool.occupy(slots, end)))
                waiting.remove(job)
                starts.append(Start(job, now - job.at))
                free -= job.gpus
            elif not pass_others:
                return

    for job in [*todo, None]:
        while ends and (job is None or ends[0][0] <= job.at):
            now, _, before = heapq.heappop(ends)
            pool.restore(before)
            start(now)
        if job is not None:
            waiting.append(job)
            start(job.at)
    return starts


# ---- the report ------------------------------------------------------------------------------------------------------


def jain(values: Sequence[float]) -> float:
    """Jain's index: 1 if all are equal, 1/n if one has everything."""
    return sum(values) ** 2 / (len(values) * sum(value * value for value in values))


def slowdowns(starts: Sequence[Start]) -> list[float]:
    """Mean bounded slowdown of each person: (wait + use) divided by use of at least ten minutes."""
    by_person: dict[int, list[float]] = {}
    for start in starts:
        used_s = max(600, start.job.used_s)
        by_person.setdefault(start.job.person, []).append((start.wait_s + used_s) / used_s)
    return [statistics.fmean(values) for values in by_person.values()]


def row(name: str, starts: Sequence[Start], days: int, seconds: float) -> str:
    """A line of the table: waits in hours by size, utilisation, fairness."""
    cells = []
    for low, high in ((1, 4), (8, 8), (16, 32), (64, 64)):
        waits = sorted(start.wait_s / HOUR for start in starts if low <= start.job.gpus <= high)
        cells.append(f"{statistics.fmean(waits):.2f} / {waits[math.ceil(0.95 * len(waits)) - 1]:.1f} / {waits[-1]:.1f}")
    horizon = days * DAY
    used = sum(
        s.job.gpus * max(0, min(horizon, s.job.at + s.wait_s + s.job.used_s) - s.job.at - s.wait_s) for s in starts
    )
    utilisation = used / (horizon * NODES * GPUS)
    light = statistics.median(sorted(slowdowns(starts)))
    fairness = jain(slowdowns(starts))
    return f"| {name} | {' | '.join(cells)} | {utilisation:.1%} | {fairness:.3f} | {light:.2f} | {seconds:.1f} |\n"


def year(days: int, load: float) -> str:
    todo = jobs(days, load)
    limits = Limits(queued_per_person=10**6)
    text = (
        f"{len(todo)} requests of {PEOPLE} people in {days} days on {NODES} nodes with {GPUS} GPUs, load {load:g}.\n"
        "Waits in hours: mean / 95 % / longest.\n\n"
        "| rule | 1 to 4 GPUs | 8 | 16 and 32 | 64 | utilisation | Jain of slowdowns | median slowdown | s |\n"
        "|---|---|---|---|---|---|---|---|---|\n"
    )
    ours = Ours(limits)
    for name, rule in (
        ("gpuctl", ours.run),
        ("FIFO", lambda jobs: simple(jobs, pass_others=False)),
        ("each that fits", lambda jobs: simple(jobs, pass_others=True)),
    ):
        started = time.process_time()
        starts = rule(todo)
        if len(starts) != len(todo):
            raise RuntimeError(f"{name}: {len(todo) - len(starts)} requests never started")
        text += row(name, starts, days, time.process_time() - started)
    return text + f"\nPromised starts that moved: {ours.moved}.\n"


def history(seed: int) -> str:
    """The broken promise of a history, or nothing."""
    try:
        World(seed, replace(ALL, latest_s=random.Random(seed).choice([10, 60, 400]))).run()  # noqa: S311
    except AssertionError as error:
        return f"seed {seed}: {error}"
    return ""


def histories(count: int, processes: int) -> str:
    started = time.monotonic()
    with ProcessPoolExecutor(processes) as pool:
        broken = [text for text in pool.map(history, range(count), chunksize=50) if text]
    seconds = time.monotonic() - started
    return (
        "\n".join([f"{count} histories in {seconds:.0f} s, {len(broken)} with a broken promise", *broken[:20]]) + "\n"
    )


def percentile(values: Sequence[float], share: float) -> float:
    return sorted(values)[math.ceil(share * len(values)) - 1]


def at_once(count: int) -> str:
    """Requests on SQLite, one decision and one commit each, with a planning pass and its commit after every 20."""
    nodes = [Node(f"n{number}", "h100", (None,) * GPUS) for number in range(NODES)]
    decisions, passes = [], []
    with tempfile.TemporaryDirectory() as folder:
        store = SqliteStore(Path(folder) / "reservations.db", Site(), nodes)
        for number in range(count):
            message = Message(Submit(Request(1 + number % 8, "h100", HOUR)), Caller(f"p{number % 200}"), str(number))
            started = time.perf_counter()
            decision, _ = handle(store.load(), message, number, store.receipt(f"p{number % 200}:{number}"))
            store.commit(decision)
            decisions.append(time.perf_counter() - started)
            if number % 20 == 19:
                passes.append(timed(lambda at=number: _plan(store, at)))  # type: ignore[misc]
        rows = len(store.load().reservations)
        store.close()
    return (
        f"{count} requests on SQLite, {rows} in the book: decision and commit median "
        f"{1e3 * statistics.median(decisions):.1f} ms, 99 % {1e3 * percentile(decisions, 0.99):.1f} ms; "
        f"planning pass with commit 99 % {1e3 * percentile(passes, 0.99):.1f} ms\n"
    )


def at_the_socket(count: int, clients: int = 32) -> str:
    """The same through the service: clients that connect at the same time, SQLite, passes on simulated nodes."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "s"
        nodes = [Node(f"gpu-{number}", "h100", (None,) * GPUS) for number in range(1, NODES + 1)]
        agents = {node.name: SimulatedNode(node.name) for node in nodes}
        service = Service(SqliteStore(Path(folder) / "reservations.db", Site(), nodes), agents, lambda: 10**6)

        def answer(_: Peer, request: Any) -> Any:
            number = request["request"]["gpus"] * 1000 + int(request["key"][4:])
            return service.answer(Caller(f"p{number % PEOPLE}"), request)

        def submit(number: int) -> tuple[float, str]:
            request = {"gpus": 1 + number % 8, "gpu_type": "h100", "length_s": HOUR}
            started = time.perf_counter()
            result = call(path, {"do": "submit", "key": f"key-{number:06}", "request": request})
            return time.perf_counter() - started, result["reservation"]["id"]

        started = time.perf_counter()
        with serving(path, answer), ThreadPoolExecutor(clients) as pool:
            results = list(pool.map(submit, range(count)))
        seconds = time.perf_counter() - started
        kept = {id_ for _, id_ in results} & set(service.store.load().reservations)
    latencies = [latency for latency, _ in results]
    return (
        f"{count} calls of {clients} clients at the socket in {seconds:.1f} s, {len(kept)} in the book: answer median "
        f"{1e3 * statistics.median(latencies):.0f} ms, 99 % {1e3 * percentile(latencies, 0.99):.0f} ms\n"
    )


def _plan(store: SqliteStore, now: int) -> None:
    draft = Draft(store.load(), now, "planner")
    plan.plan(draft)
    store.commit(draft.decision())


def timed(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def replanning(count: int) -> str:
    """A planning pass and a forecast over a long queue."""
    ours = Ours(Limits(queued_per_person=10**6))
    draw = random.Random(5)  # noqa: S311 - a simulation
    for number in range(count + 60):
        job = Job(number, draw.randrange(PEOPLE), draw.choices([*SIZES], [*SIZES.values()])[0], 8 * HOUR, 8 * HOUR)
        ours._submit(number, job)  # noqa: SLF001 - of this file
    queued = len(ours.book.in_state(State.QUEUED))
    draft = Draft(ours.book, 10**4, "planner")
    planned, forecasts = timed(lambda: plan.plan(draft)), timed(lambda: forecast(ours.book, 10**4))
    return (
        f"queue of {queued}: planned again in {1e3 * planned:.0f} ms, all starts forecast in {1e3 * forecasts:.0f} ms\n"
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.reservations", description=__doc__)
    parser.add_argument("part", nargs="*", default=["year", "at-once", "replan"])
    parser.add_argument("--days", type=int, default=365)
    parser.add_argument("--load", type=float, default=0.75, help="share of the GPUs that would be used without waiting")
    parser.add_argument("--count", type=int, default=100_000, help="histories")
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args()
    parts: dict[str, Callable[[], str]] = {
        "year": lambda: year(options.days, options.load),
        "histories": lambda: histories(options.count, options.processes),
        "at-once": lambda: at_once(1000) + at_the_socket(1000),
        "replan": lambda: replanning(500),
    }
    for name in options.part:
        sys.stdout.write(parts[name]() + "\n")
    sys.stdout.write(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024} MiB\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
