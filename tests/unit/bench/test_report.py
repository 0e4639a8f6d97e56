"""The benchmark's arithmetic: medians, ratios, aims and growth."""

from __future__ import annotations

from bench import report
from bench.measure import Timing
from bench.report import Row


def row(name: str, *walls: float) -> Row:
    return Row(name, [Timing(wall, 0.5, 0.0, "", hosts_cpu=wall / 2) for wall in walls])


def test_the_table_has_medians_and_ratios_to_the_floor() -> None:
    text = report.table([row(report.FLOOR, 1.0, 9.0, 2.0), row("pyinfra, first run", 8.0, 6.0, 7.0)], 10, 43)
    assert f"| {report.FLOOR} | 2.00 | 1.00 to 9.00 | 0.50 | 1.00 | 3 | 1.00 | 1.00 |" in text
    assert "| pyinfra, first run | 7.00 | 6.00 to 8.00 | 0.50 | 3.50 | 3 | 3.50 | 2.67 |" in text


def test_an_aim_is_met_or_not_and_left_out_where_it_was_not_measured() -> None:
    rows = [row(report.FLOOR, 1.0), row("gpuctl drift", 1.6), row("gpuctl tune-nodes, nothing to change", 1.9)]
    text = report.table(rows, 10, 43)
    assert "| drift within 1.5 times the floor | 1.60 times | not met |" in text
    assert "| a run with nothing to change within 2 times the floor | 1.90 times | met |" in text
    assert "pyinfra" not in text


def test_first_runs_through_ansible_and_over_ssh_have_aims_of_their_own() -> None:
    first = row("gpuctl tune-nodes, first run", 4.1)
    text = report.table([row(report.FLOOR, 1.0), first, row("gpuctl tune-nodes --via ssh, first run", 2.9)], 10, 43)
    assert "| a first run through Ansible within 4 times the floor | 4.10 times | not met |" in text
    assert "| a first run over ssh alone within 3 times the floor | 2.90 times | met |" in text


def test_processor_time_on_hosts_is_left_out_where_it_was_not_measured() -> None:
    bare = Row(report.FLOOR, [Timing(1.0, 0.5, 0.0, "")])
    assert "| 0.50 | - | 1 | 1.00 | - |" in report.table([bare], 10, 43)


def test_growth_tells_whether_a_host_takes_longer_among_many() -> None:
    few, many = (5, row("", 1.0), row("", 1.0), row("", 1.0)), (50, row("", 9.0), row("", 9.0), row("", 12.0))
    assert "a host takes 1.20 times as long among 50 as among 5 (not met)" in report.growth([few, many])
    assert "a host takes 0.90 times as long among 50 as among 5 (met)" in report.growth(
        [few, (*many[:3], row("", 8.0))]
    )
