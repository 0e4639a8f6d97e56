"""gpuctl audit --from: kernel logs are judged; what is no kernel log is never OK."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner, Result

from gpuctl.cli.audit import Hours, audit
from gpuctl.core.errors import InvalidInput
from gpuctl.domain.report import JSON_SCHEMA
from tests.rig.recordings import recording

XID_79 = "[ 5.000001] NVRM: Xid (PCI:0000:66:00): 79, GPU has fallen off the bus.\n"
QUIET = "[    5.000001] usb 1-1: new high-speed USB device number 2\n"


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "dmesg.txt"


def run(*words: str | Path, stdin: str = "") -> Result:
    return CliRunner().invoke(audit, [str(word) for word in words], input=stdin)


def verdicts(*words: str | Path, stdin: str = "") -> tuple[int, list[tuple[str, str, str]]]:
    """Exit code, and (target, check, verdict) of the findings."""
    result = run(*words, "--output", "json", stdin=stdin)
    report = json.loads(result.output)
    assert set(JSON_SCHEMA["required"]) <= set(report)
    assert report["exit_code"] == result.exit_code
    return result.exit_code, [(f["target"], f["check"], f["verdict"]) for f in report["findings"]]


def test_a_failed_gpu_is_exit_code_1_with_the_action(log: Path) -> None:
    log.write_text(QUIET + XID_79)
    result = run("--from", log)
    assert result.exit_code == 1
    assert result.output.startswith(f"FAIL  {log}\n")
    assert "GPU 0000:66:00.0: Xid 79: The GPU fell off" in result.output
    assert "hint: drain the node and reboot it" in result.output


def test_a_log_without_errors_is_ok_and_states_how_much_was_read(log: Path) -> None:
    log.write_text(QUIET * 3)
    assert verdicts("--from", log) == (0, [(str(log), "kernel-log", "OK")])
    assert "no fault in 3 kernel messages" in run("--from", log).output


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n\n",
        "hello\n",
        "Aug 17 00:00:24 vm systemd[1]: Finished Rotate log files.\n",
        '[1]     "S-0ff08c432172aa1a"[21] # a switch\n',
        "[1] A footnote.\n",
    ],
)
def test_text_without_kernel_messages_is_unknown(text: str, log: Path) -> None:
    log.write_text(text)
    assert verdicts("--from", log) == (1, [(str(log), "kernel-log", "UNKNOWN")])
    assert f"no kernel messages in {log}" in run("--from", log).output


def test_a_warning_is_exit_code_0(log: Path) -> None:
    log.write_text(XID_79.replace("79", "13"))
    assert verdicts("--from", log) == (0, [(str(log), "xid", "WARN")])


def test_several_files_standard_input_and_gzip(log: Path, tmp_path: Path) -> None:
    log.write_text(QUIET)
    packed = tmp_path / "old.gz"
    packed.write_bytes(gzip.compress(XID_79.encode()))
    code, judged = verdicts("--from", log, packed, "--from", "-", stdin=XID_79.replace("79", "999"))
    assert code == 1
    assert sorted(judged) == sorted(
        [(str(log), "kernel-log", "OK"), (str(packed), "xid", "FAIL"), ("-", "xid", "UNKNOWN")],
    )


def test_files_that_are_no_text_are_refused(tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"\x00\x01")
    (tmp_path / "cut.gz").write_bytes(gzip.compress(XID_79.encode() * 50)[:30])
    for path in (tmp_path / "none", tmp_path / "binary", tmp_path / "cut.gz"):
        error = run("--from", path).exception
        assert isinstance(error, InvalidInput), path
        assert str(path) in error.doing


def test_files_and_nodes_are_not_mixed(log: Path) -> None:
    for words in (
        (log,),
        ("--from", log, "--inventory", "lab"),
        ("--from", log, "--save", "x"),
        ("--from", log, "--deep", "1"),
        ("--deep", "4"),
        ("--since", "soon"),
    ):
        result = run(*words)
        assert result.exit_code == 2 or isinstance(result.exception, InvalidInput), words


@pytest.mark.parametrize(("text", "hours"), [("30m", 0.5), ("24h", 24.0), ("7d", 168.0)])
def test_times_are_in_minutes_hours_or_days(text: str, hours: float) -> None:
    assert Hours().convert(text, None, None) == hours


def test_junit_and_metrics(log: Path, tmp_path: Path) -> None:
    log.write_text(XID_79)
    result = run("--from", log, "--output", "junit", "--metrics", tmp_path / "x.prom")
    root = ElementTree.fromstring(result.output)  # noqa: S314 our own text
    assert root.get("failures") == "1"
    assert "xid_79_events" in (tmp_path / "x.prom").read_text()


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("host/gpud_dmesg_xid119.log", (1, ["FAIL"])),
        ("host/gpud_dmesg_iso.log", (0, ["WARN"])),
        ("host/gpu_fallen_multiline.log", (1, ["FAIL"])),
        ("host/gpud_pstore_dmesg_erst.txt", (1, ["FAIL"])),
        ("host/azure_syslog_ib_flap_0.txt", (1, ["UNKNOWN"])),
        ("host/azure_syslog_ib_flap_6.txt", (1, ["WARN", "UNKNOWN"])),
        ("host/gpud_dmesg_peermem_iso.log", (0, ["OK"])),
    ],
)
def test_recorded_logs_have_the_verdict_read_by_hand(name: str, expected: tuple[int, list[str]]) -> None:
    code, judged = verdicts("--from", recording(name))
    assert (code, [verdict for _, _, verdict in judged]) == expected


@pytest.mark.parametrize(
    "words",
    [
        ["--serve", "9400"],
        ["--watch", "--from", "x"],
        ["--watch", "--save", "x.json"],
        ["--watch", "--output", "json"],
        ["--watch", "--serve", "nowhere"],
        ["--partition", "main"],
        ["--slurm", "--from", "x"],
    ],
)
def test_options_that_exclude_each_other_are_refused_before_anything_is_asked(words: list[str]) -> None:
    assert isinstance(run(*words).exception, InvalidInput)
