"""Logs as JSON: whatever shipped or exported them, whoever printed each line."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import chain
from typing import Any

import pytest

from gpuctl.domain.findings import Verdict
from gpuctl.nccl.baselines.model import Book
from gpuctl.nccl.context import RunContext
from gpuctl.nccl.judge.run import judge
from gpuctl.nccl.model import Run
from gpuctl.nccl.parsing import parse
from tests.rig.nccl import recorded

LINES = [line for line in recorded.text("h100_2n2g_roce_info.log").splitlines() if line.strip()]
OTHER = [line for line in recorded.text("h100_1n8g_allreduce.log").splitlines() if line.strip()]
POD = {"namespace_name": "ml", "pod_name": "nccl-a-0", "container_name": "test"}
STAMP = "2026-11-23T10:17:22.123456789Z"


def runs(text: str) -> list[Run]:
    return list(parse.runs(text.splitlines(keepends=True)))


def lines_of(form: Callable[[str], dict[str, Any]], lines: Iterable[str] = LINES) -> str:
    return "".join(json.dumps(form(line)) + "\n" for line in lines)


PLAIN = runs("\n".join(LINES) + "\n")

RECORDS: dict[str, Callable[[str], dict[str, Any]]] = {
    "docker, keys in another order": lambda line: {"stream": "stdout", "time": STAMP, "log": line + "\n"},
    "docker, line ends taken off": lambda line: {"time": STAMP, "stream": "stdout", "log": line},
    "fluent-bit": lambda line: {"time": STAMP, "stream": "stdout", "_p": "F", "log": line, "kubernetes": POD},
    "fluent-bit, containerd's line unparsed": lambda line: {"date": 1.5, "log": f"{STAMP} stdout F {line}"},
    "fluent-bit over docker": lambda line: {
        "kubernetes": POD,
        "log": json.dumps({"log": line + "\n", "stream": "stdout", "time": STAMP}),
    },
    "vector": lambda line: {"file": "/var/log/pods/x", "kubernetes": POD, "message": line, "timestamp": STAMP},
    "filebeat": lambda line: {"@timestamp": STAMP, "message": line, "kubernetes": {"pod": {"name": "nccl-a-0"}}},
    "stern": lambda line: {"nodeName": "n", "podName": "nccl-a-0", "containerName": "test", "message": line + "\n"},
    "zap": lambda line: {"level": "info", "ts": 1.5, "msg": line},
    "journald": lambda line: {"_HOSTNAME": "node-1", "_PID": "7", "MESSAGE": line},
    "journald, as bytes": lambda line: {"MESSAGE": list(line.encode()), "_HOSTNAME": "node-1"},
    "logcli": lambda line: {"labels": {"pod": "nccl-a-0"}, "line": line, "timestamp": STAMP},
    "google cloud": lambda line: {"textPayload": line, "resource": {"labels": {"pod_name": "nccl-a-0"}}},
}


def same(read: list[Run], plain: list[Run] = PLAIN) -> bool:
    return [replace(run, cause=None, origin=None) for run in read] == [replace(run, cause=None) for run in plain]


@pytest.mark.parametrize("form", RECORDS)
def test_a_record_a_line_reads_like_the_log_itself(form: str) -> None:
    assert same(runs(lines_of(RECORDS[form])))


def loki(lines: Iterable[str]) -> dict[str, Any]:
    newest_first = [[str(10**18 + number // 3), line] for number, line in enumerate(lines)][::-1]
    return {"data": {"resultType": "streams", "result": [{"stream": {"pod": "p"}, "values": newest_first}]}}


def elasticsearch(lines: Iterable[str]) -> dict[str, Any]:
    return {"hits": {"total": 9, "hits": [{"_id": "1", "_source": {"message": line}} for line in lines]}}


def cloudwatch(lines: Iterable[str]) -> dict[str, Any]:
    return {"events": [{"timestamp": 1, "message": line, "ingestionTime": 2} for line in lines], "nextToken": "f/1"}


def container_insights(lines: Iterable[str]) -> dict[str, Any]:
    return cloudwatch(json.dumps({"log": line, "stream": "stdout", "kubernetes": POD}) for line in lines)


@pytest.mark.parametrize("indent", [None, 4])
@pytest.mark.parametrize(
    "export", [loki, elasticsearch, cloudwatch, container_insights, lambda lines: [{"message": line} for line in lines]]
)
def test_an_export_in_one_document_reads_like_the_log_itself(
    export: Callable[[Iterable[str]], object], indent: int | None
) -> None:
    assert same(runs(json.dumps(export(LINES), indent=indent)))


def test_records_in_many_lines_each_and_an_array_of_records_read_like_the_log_itself() -> None:
    records = [{"MESSAGE": line, "_HOSTNAME": "node-1"} for line in LINES]
    assert same(runs("".join(json.dumps(record, indent=8) + "\n" for record in records)))
    assert same(runs("[\n" + ",\n".join(json.dumps(record) for record in records) + "\n]\n"))


def test_the_run_names_the_pod_that_printed_its_table() -> None:
    (run,) = runs(lines_of(RECORDS["fluent-bit"]))
    assert run.origin == "nccl-a-0 test"
    (run,) = runs(lines_of(RECORDS["journald"]))
    assert run.origin == "node-1"
    assert PLAIN[0].origin is None


def test_records_among_other_lines_and_lines_of_other_pods_read_like_the_log_itself() -> None:
    other = json.dumps({"level": "info", "msg": "serving", "kubernetes": {**POD, "pod_name": "web-1"}})
    text = "".join(f"I1123 kubelet: synced\n{line}\n{other}\n" for line in lines_of(RECORDS["fluent-bit"]).splitlines())
    assert same(runs(text))


TWO: dict[str, Callable[[int, str], str]] = {
    "vector": lambda pod, line: json.dumps({"message": line, "kubernetes": {**POD, "pod_name": f"nccl-{pod}"}}),
    "kubectl logs --prefix": lambda pod, line: f"[pod/nccl-{pod}/test] {line}",
    "kubectl logs --prefix --timestamps": lambda pod, line: f"[pod/nccl-{pod}/test] {STAMP} {line}",
    "stern": lambda pod, line: f"nccl-{pod} test {line}",
    "docker compose": lambda pod, line: f"nccl-{pod}  | {line}",
    "journald": lambda pod, line: f"Nov 23 10:17:22 nccl-{pod} bash[7]: {line}",
}


@pytest.mark.parametrize("form", TWO)
def test_tables_of_two_pods_at_a_time_are_two_runs(form: str) -> None:
    lines = chain.from_iterable((TWO[form](0, line), TWO[form](1, line)) for line in OTHER)
    first, second = runs("\n".join(lines) + "\n")
    (alone,) = runs("\n".join(OTHER) + "\n")
    assert first.rows == second.rows == alone.rows
    assert (first.origin or "")[:6] == "nccl-0"
    assert (second.origin or "")[:6] == "nccl-1"


def test_nccls_messages_of_workers_belong_to_the_launchers_table() -> None:
    def record(line: str) -> dict[str, Any]:
        return {"message": line, "podName": "worker-1" if "NCCL INFO" in line else "launcher"}

    (run,) = runs(lines_of(record))
    assert (run.transports, run.origin) == (PLAIN[0].transports, "launcher")


def test_of_two_tables_at_a_time_each_gets_the_messages_of_its_own_hosts() -> None:
    again = [line.replace("MOC-R4PCC", "far-") for line in LINES]
    hosts = [{rank.host for rank in run.ranks} for run in (*PLAIN, *runs("\n".join(again) + "\n"))]
    text = ""
    for pair in zip(LINES, again, strict=True):
        for number, line in enumerate(pair):
            text += (
                json.dumps({"message": line, "podName": "w" if "NCCL INFO" in line else f"launcher-{number}"}) + "\n"
            )
    first, second = runs(text)
    assert [{rank.host for rank in run.ranks} for run in (first, second)] == hosts
    assert {one.host for one in second.transports} <= hosts[1]


def test_long_lines_in_parts_are_joined_pod_by_pod() -> None:
    def parts(pod: str, line: str) -> list[str]:
        half = len(line) // 2
        pieces = (("P", line[:half]), ("F", line[half:]))
        return [json.dumps({"log": text, "_p": part, "kubernetes": {**POD, "pod_name": pod}}) for part, text in pieces]

    pairs = [(parts("a", one), parts("b", one)) for one in OTHER]
    text = "".join(f"{a[0]}\n{b[0]}\n{a[1]}\n{b[1]}\n" for a, b in pairs)
    assert [run.rows for run in runs(text)] == [run.rows for run in runs("\n".join(OTHER) + "\n") * 2]


@pytest.mark.parametrize("nested", ["{" * 60_000, '{"log":' * 5_000, '[{"message":' * 5_000, '{"events":[' * 5_000])
def test_json_that_is_nested_without_end_is_no_fault_of_ours(nested: str) -> None:
    assert [run.rows for run in runs(nested + "\n")] == [()]


def test_a_brace_alone_does_not_swallow_the_log() -> None:
    assert [run.rows for run in runs("{\n" + "\n".join(LINES) + "\n")] == [PLAIN[0].rows]


@pytest.mark.parametrize("lines", [[line for line in OTHER for _ in range(2)], OTHER[::-1]])
def test_lines_of_several_runs_without_a_name_and_the_newest_first_are_never_ok(lines: list[str]) -> None:
    about, book = RunContext(), Book({}, ())
    for run in runs("\n".join(lines) + "\n"):
        verdicts = {finding.verdict for finding in judge(run, about, book) if finding.check == "outcome"}
        assert verdicts & {Verdict.UNKNOWN, Verdict.FAIL}


def test_a_sweep_that_is_printed_again_is_in_order() -> None:
    rows = [line for line in OTHER if line[:20].strip()[:1].isdigit()]
    start = OTHER.index(rows[0])
    (run,) = runs("\n".join([*OTHER[:start], *rows, *OTHER[start:]]) + "\n")
    assert not any("order" in finding.message for finding in judge(run, RunContext(), Book({}, ())))
