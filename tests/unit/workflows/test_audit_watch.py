"""Repeated audits: one at a time, served on loopback, and the file of metrics after each."""

from __future__ import annotations

import http.client
import socket
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from gpuctl.core.errors import GpuctlError, InvalidInput
from gpuctl.domain.findings import ok
from gpuctl.domain.report import Report
from gpuctl.edges import metrics_server
from gpuctl.workflows import audit_watch
from gpuctl.workflows.audit_watch import Watch

GOOD = Report("audit", {"prod": [ok("pcie", "")]}, {"nodes": ["a"]}, code=0)


class Clock:
    now = 1_790_000_000.0

    def __call__(self) -> float:
        return self.now


def watch(audit: Callable[[], Report], clock: Clock, metrics: Path | None = None) -> Watch:
    return Watch(audit, 300, 120, metrics, clock)


def broken() -> Report:
    raise GpuctlError("read the inventory", "no such file", "")


def test_the_file_is_written_after_each_audit_and_turns_stale_where_they_fail(tmp_path: Path) -> None:
    clock, path = Clock(), tmp_path / "audit.prom"
    good = watch(lambda: GOOD, clock, path)
    assert good.once() is GOOD
    assert "gpuctl_audit_stale 0.0" in path.read_text()
    assert path.stat().st_mode & 0o777 == 0o644
    good.audit = broken
    clock.now += 2 * 300 + 120 + 61
    assert isinstance(good.once(), GpuctlError)
    assert "gpuctl_audit_stale 1.0" in path.read_text()
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(("took", "pause"), [(0, 300), (40, 260), (300, 0), (900, 0)])
def test_the_next_audit_begins_at_the_interval_or_at_once(took: float, pause: float) -> None:
    clock = Clock()
    started = clock.now
    clock.now += took
    assert watch(lambda: GOOD, clock).pause_s(started) == pause


def get(url: str, path: str = "/metrics") -> tuple[int, str, str]:
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=5)
    connection.request("GET", path)
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer.status, answer.headers["Content-Type"], text


def test_prometheus_gets_the_state_of_the_moment_also_while_an_audit_runs() -> None:
    clock = Clock()
    during: list[str] = []
    running = watch(lambda: GOOD, clock)
    with audit_watch.serving(running, "0") as url:
        assert url.startswith("http://127.0.0.1:")

        def audit() -> Report:
            during.append(get(url)[2])
            return GOOD

        running.audit = audit
        running.once()
        running.once()
        status, kind, text = get(url)
        assert (status, kind) == (200, "text/plain; version=0.0.4; charset=utf-8")
        assert "gpuctl_audit_runs_total 2.0" in text
        assert "gpuctl_audit_stale 1.0" in during[0]
        assert "gpuctl_audit_stale 0.0" in during[1]
        clock.now += 10_000
        assert "gpuctl_audit_stale 1.0" in get(url)[2]
        assert get(url, "/")[0] == 404


def test_a_client_that_sends_nothing_holds_nobody() -> None:
    with audit_watch.serving(watch(lambda: GOOD, Clock()), "0") as url:
        parts = urlsplit(url)
        with socket.create_connection((parts.hostname or "", parts.port or 0)):
            assert get(url)[0] == 200


@pytest.mark.parametrize(
    ("text", "at", "public"),
    [
        ("9400", ("127.0.0.1", 9400), False),
        ("localhost:9400", ("127.0.0.1", 9400), False),
        ("[::1]:9400", ("::1", 9400), False),
        ("0.0.0.0:9400", ("0.0.0.0", 9400), True),  # noqa: S104 - it is never bound
        ("10.0.0.5:9400", ("10.0.0.5", 9400), True),
    ],
)
def test_an_address_is_loopback_unless_another_is_named(text: str, at: tuple[str, int], public: bool) -> None:
    assert metrics_server.address(text) == at
    assert audit_watch.is_public(text) is public


@pytest.mark.parametrize("text", ["", ":9400", "host:9400", "9400x", "70000", "1.2.3.4", "1.2.3.4:", "-1", "[::1]"])
def test_any_other_address_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput):
        metrics_server.address(text)


def test_a_port_in_use_is_named() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as other,
        pytest.raises(GpuctlError, match="Address already in use"),
        audit_watch.serving(watch(lambda: GOOD, Clock()), str(other.getsockname()[1])),
    ):
        pass
