"""Every excerpt and every recording has the facts that a reader of it finds."""

from __future__ import annotations

import re

import pytest

from gpuctl.nccl import serialize
from tests.rig.nccl.recorded import DATA, FACTS, OURS, RECORDED, flat, path, runs, text


def test_every_excerpt_has_its_facts() -> None:
    assert sorted(file.name for file in DATA.iterdir()) == sorted(OURS)


def test_every_recording_with_facts_exists_and_none_is_among_the_excerpts() -> None:
    assert all(path(name).is_file() for name in RECORDED)
    assert not OURS.keys() & RECORDED.keys()


@pytest.mark.parametrize("name", FACTS)
def test_outcome_and_cause(name: str) -> None:
    facts = FACTS[name]
    (run,) = runs(text(name))
    assert run.outcome == facts["outcome"]
    if facts.get("cause"):
        assert facts["cause"] in (run.cause or "")
    else:
        assert run.cause is None


@pytest.mark.parametrize("name", FACTS)
def test_rows(name: str) -> None:
    facts = FACTS[name]
    (run,) = runs(text(name))
    assert len(run.rows) == facts.get("rows", 0)
    if "first" in facts:
        assert flat(run.rows[0]) == facts["first"]
    if "last" in facts:
        assert flat(run.rows[-1]) == facts["last"]


@pytest.mark.parametrize("name", FACTS)
def test_summary_and_collective(name: str) -> None:
    facts = FACTS[name]
    (run,) = runs(text(name))
    told = serialize.run_as_dict(run)
    assert run.avg_busbw_gbs == facts.get("avg")
    assert run.collective == facts.get("collective")
    assert [told["max_busbw_gbs"], told["max_busbw_size_bytes"]] == (facts.get("max") or [None, None])
    if "out_of_bounds" in facts:
        assert run.out_of_bounds == facts["out_of_bounds"]


@pytest.mark.parametrize("name", [name for name in FACTS if "ranks" in FACTS[name]])
def test_ranks(name: str) -> None:
    facts = FACTS[name]
    (run,) = runs(text(name))
    assert len(run.ranks) == facts["ranks"]
    if "rank" in facts:
        columns = ("rank", "host", "pid", "device", "gpu")
        assert facts["rank"] in [[one[name] for name in columns] for one in serialize.run_as_dict(run)["ranks"]]
    addresses = [rank.bus_id for rank in run.ranks if rank.bus_id]
    assert all(re.fullmatch(r"[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}", address) for address in addresses)


@pytest.mark.parametrize("name", [name for name in FACTS if FACTS[name].keys() & {"versions", "transports"}])
def test_versions_and_transport(name: str) -> None:
    facts = FACTS[name]
    (run,) = runs(text(name))
    told = serialize.run_as_dict(run)
    nothing = dict.fromkeys(("nccl", "nccl_tests", "cuda", "plugin"))
    if "versions" in facts:
        assert told["versions"] == {**nothing, **facts["versions"]}
    assert len(run.transports) == facts.get("transports", 0)
    if "algorithms" in facts:
        assert list(run.algorithms) == facts["algorithms"]
    assert list(run.forced_algorithms) == facts.get("forced_algorithms", [])
    if "transport" in facts:
        listed = [[one.rank, one.network, one.provider, list(one.nics), one.gdr] for one in run.transports]
        assert facts["transport"] in listed


@pytest.mark.parametrize("name", FACTS)
def test_the_document_comes_back_as_it_was(name: str) -> None:
    (run,) = runs(text(name))
    assert serialize.run_from_dict(serialize.run_as_dict(run)) == run


@pytest.mark.parametrize(
    ("names", "rows"),
    [
        ([name for name in OURS if name.endswith("_old_unchecked.log")], 12),
        ([name for name in RECORDED if name.startswith("sb_")], 34),
    ],
    ids=["ours", "recorded"],
)
def test_six_tests_in_one_file_are_six_runs(names: list[str], rows: int) -> None:
    found = runs("".join(text(name) for name in names))
    assert [len(run.rows) for run in found] == [rows] * 6
    assert [run.avg_busbw_gbs for run in found] == [FACTS[name]["avg"] for name in names]


@pytest.mark.parametrize(
    "name",
    [
        "h100_2n16g_allreduce.log",
        "gh200_2n2g_allreduce_wrong.log",
        "oci_h100_2n16g_allreduce.log",
        "gh200_2n2g_slingshot_FAILED_wrong96.log",
    ],
)
def test_a_text_whose_hashes_were_eaten_says_the_same(name: str) -> None:
    (run,) = runs(text(name))
    assert runs(text(name).replace("#  ", "   ").replace("# ", "").replace("#\n", "\n")) == [run]
