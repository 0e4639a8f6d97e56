"""Every recorded output says what a reader of it finds."""

from __future__ import annotations

import pytest

from gpuctl.nccl import serialize
from tests.unit.nccl.parsing.recorded import DATA, FACTS, flat, runs, text


def test_every_recorded_output_has_its_facts() -> None:
    assert sorted(path.name for path in DATA.iterdir()) == sorted(FACTS)


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
        listed = [list(one.values()) for one in serialize.run_as_dict(run)["ranks"]]
        assert facts["rank"] in listed


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


def test_six_tests_in_one_file_are_six_runs() -> None:
    names = [name for name in FACTS if name.startswith("sb_")]
    found = runs("".join(text(name) for name in names))
    assert [len(run.rows) for run in found] == [34] * 6
    assert [run.avg_busbw_gbs for run in found] == [FACTS[name]["avg"] for name in names]


def test_a_text_whose_hashes_were_eaten_says_the_same() -> None:
    for name in ("oci_h100_2n16g_allreduce.log", "gh200_2n2g_slingshot_FAILED_wrong96.log"):
        (run,) = runs(text(name))
        assert runs(text(name).replace("#  ", "   ").replace("# ", "").replace("#\n", "\n")) == [run]
