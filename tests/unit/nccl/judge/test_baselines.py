"""The rows that come with gpuctl, and how strictly files are read."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
import yaml

from gpuctl.core.errors import InvalidInput
from gpuctl.nccl.baselines import load
from gpuctl.nccl.context import RunContext
from tests.rig.nccl.judged import GIB, SHIPPED

ROW = yaml.safe_load(load.SHIPPED.read_text())["baselines"][0]
ARTEFACT_SYSTEMS = ("p5.48xlarge", "p5e.48xlarge", "p5en.48xlarge")


def written(folder: Path, **changed: object) -> Path:
    row = {name: value for name, value in {**ROW, **changed}.items() if value is not None}
    path = folder / "rows.yml"
    path.write_text(yaml.safe_dump({"baselines": [row]}))
    return path


def test_every_row_says_where_it_comes_from_and_why() -> None:
    assert SHIPPED.rows
    for row in SHIPPED.rows:
        assert row.source.strip(), row.where
        assert row.why.strip(), row.where
        assert set(row.systems) <= set(SHIPPED.systems), row.where


def test_no_row_asks_for_more_than_a_ring_can_carry_on_several_nodes() -> None:
    for row in SHIPPED.rows:
        if row.nodes[0] > 2 and "Ring" in row.algorithms:
            assert row.least < (row.expect or 0) < min(SHIPPED.systems[name].line_rate_gbs for name in row.systems)


def test_no_row_is_for_any_number_of_nodes_and_more_nodes_are_not_expected_to_be_faster() -> None:
    limits: dict[tuple[object, ...], list[tuple[int, float]]] = {}
    for row in SHIPPED.rows:
        assert row.nodes[1] is not None, row.where
        for name in row.systems:
            for size in (4 * GIB, 8 * GIB, 16 * GIB):
                if row.covers(size) and row.nodes[0] > 2:
                    key = (name, row.collective, row.algorithms, row.kind, size)
                    limits.setdefault(key, []).append((row.nodes[0], row.least))
    assert len(limits) > 5
    for by_nodes in limits.values():
        rising = [limit for _, limit in sorted(by_nodes)]
        assert all(more <= 1.02 * fewer for fewer, more in pairwise(rising)), "2 % is noise"


@pytest.mark.parametrize(
    ("collective", "nodes", "size", "busbw"),
    [  # crazyguitar/aws-gpu-communication-benchmark, data/: all of them are healthy p5.48xlarge
        *(("all_reduce", nodes, 4 * GIB, busbw) for nodes, busbw in ((4, 354.45), (8, 351.32), (16, 306.15))),
        *(("all_reduce", nodes, 8 * GIB, busbw) for nodes, busbw in ((4, 356.99), (16, 356.27), (32, 321.10))),
        *(("alltoall", nodes, GIB, busbw) for nodes, busbw in ((2, 77.73), (4, 53.75), (16, 42.36), (32, 38.68))),
    ],
)
def test_what_was_measured_passes_at_every_number_of_nodes(
    collective: str, nodes: int, size: int, busbw: float
) -> None:
    about = RunContext("p5.48xlarge", nodes, 8, algorithm="default", collective=collective)
    row = SHIPPED.row_for(about, size)
    assert row is not None
    assert row.warn is not None
    assert row.warn < busbw
    assert SHIPPED.row_for(replace(about, nodes=1000), size) is None


def test_two_nodes_of_p5_have_a_fall_back_limit_and_no_expectation() -> None:
    own, inferred = (
        next(row for row in SHIPPED.rows if row.systems == systems and row.nodes == (2, 2))
        for systems in (ARTEFACT_SYSTEMS[:1], ARTEFACT_SYSTEMS[1:])
    )
    assert (own.expect, own.warn, own.fail, own.kind) == (None, None, 350, "measured")
    assert (inferred.expect, inferred.warn, inferred.fail, inferred.kind) == (None, 350, None, "derived")


def test_no_two_rows_are_about_the_same() -> None:
    keys = [
        (name, row.nodes, row.collective, a, row.from_bytes)
        for row in SHIPPED.rows
        for name in row.systems
        for a in row.algorithms
    ]
    assert len(keys) == len(set(keys))


@pytest.mark.parametrize("name", ["source", "why", "kind", "from", "to", "nodes", "systems", "algorithms"])
def test_a_row_that_lacks_what_it_needs_is_refused_with_its_line(name: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=rf"rows.yml:2: baselines\[0\].{name} is missing"):
        load.load(written(tmp_path, **{name: None}))


@pytest.mark.parametrize(
    ("changed", "wrong"),
    [
        ({"source": ""}, "source is empty"),
        ({"source": " "}, "source is ' ': not text"),
        ({"expect": 300}, "fail, warn and expect to rise"),
        ({"fail": "fast"}, "not a bandwidth in GB/s"),
        ({"fail": -1}, "not a bandwidth in GB/s"),
        ({"kind": "guessed"}, "cannot be 'guessed'"),
        ({"collective": "allreduce"}, "did you mean all_reduce"),
        ({"algorithms": ["ring"]}, "cannot be 'ring'"),
        ({"nodes": "many"}, "not 2, 4-16 or 4"),
        ({"nodes": "8-4"}, "not 2, 4-16 or 4"),
        ({"from": "4GB"}, "not a size"),
        ({"from": "32GiB"}, "has its from above its to"),
        ({"exspect": 365}, "did you mean expect"),
        ({"gpus_per_node": 0}, "not a whole number from 1 to"),
    ],
)
def test_a_row_that_says_what_cannot_be_is_refused(changed: dict[str, object], wrong: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=wrong):
        load.load(written(tmp_path, **changed))


def test_a_row_without_fail_only_warns_and_one_without_any_limit_is_refused(tmp_path: Path) -> None:
    (row,) = load.load(written(tmp_path, fail=None)).rows
    assert (row.fail, row.least) == (None, ROW["warn"])
    assert "fail" not in load.plain(row)
    with pytest.raises(InvalidInput, match=r"rows.yml:2: baselines\[0\] has no limit"):
        load.load(written(tmp_path, fail=None, warn=None))


def test_no_run_fails_by_what_was_inferred_from_another_collective_or_machine() -> None:
    inferred = [row for row in SHIPPED.rows if row.kind == "derived"]
    others = {"all_gather", "reduce_scatter", "broadcast", "reduce", "sendrecv"}
    assert {row.collective for row in inferred} >= {"all_reduce", *others}
    assert {row.fail for row in inferred} == {None}
    assert all(row.warn and row.warn <= 0.96 * row.expect for row in inferred if row.expect)


def test_a_derived_row_with_a_fail_limit_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"baselines\[0\] is derived, and has a fail limit; use warn"):
        load.load(written(tmp_path, kind="derived"))


def test_every_mistake_is_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput) as refused:
        load.load(written(tmp_path, source=None, kind="guessed", fail="fast"))
    assert refused.value.wrong.count("rows.yml:") == 3


@pytest.mark.parametrize(("written_", "read"), [("InfiniBand", "ib"), ("rocev2", "roce"), ("gIB", "gIB")])
def test_the_network_of_a_machine_type_may_have_any_of_its_names(written_: str, read: str, tmp_path: Path) -> None:
    path = tmp_path / "rows.yml"
    ours = {"gpus": 8, "line_rate_gbs": 400, "network": written_, "source": "ours"}
    path.write_text(yaml.safe_dump({"systems": {"ours": ours}, "baselines": [ROW]}))
    assert load.load(path).systems["ours"].network == read
    path.write_text(yaml.safe_dump({"systems": {"ours": {**ours, "network": "infinibnd"}}, "baselines": [ROW]}))
    with pytest.raises(InvalidInput, match="did you mean infiniband"):
        load.load(path)


@pytest.mark.parametrize("name", ["from", "fail", "nodes"])
def test_a_number_that_is_none_is_a_mistake_in_its_line(name: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"rows\.yml:"):
        load.load(written(tmp_path, **{name: "9" * 5000}))


def test_a_row_written_is_the_row_that_is_read(tmp_path: Path) -> None:
    path = tmp_path / "rows.yml"
    systems = {name: load.plain_system(one) for name, one in SHIPPED.systems.items()}
    rows = [load.plain(row) for row in SHIPPED.rows]
    path.write_text(yaml.safe_dump({"systems": systems, "baselines": rows}))
    again = load.load(path)
    assert again.systems == SHIPPED.systems
    assert [load.plain(row) for row in again.rows] == rows


def test_the_sites_rows_stand_before_those_that_come_with_gpuctl(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPUCTL_CONFIG_DIR", str(tmp_path))
    assert not any(row.site for row in load.book().rows)
    written(tmp_path, expect=390, warn=380, fail=370).rename(load.site_file())
    book = load.book()
    assert (book.rows[0].site, book.rows[0].expect) == (True, 390)
    assert len(book.rows) == len(SHIPPED.rows) + 1
