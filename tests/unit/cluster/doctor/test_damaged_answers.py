"""A pod whose answer is damaged anywhere is unknown with the reason, or diagnosed; the other pods are diagnosed."""

from __future__ import annotations

import base64
import json
import zlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpuctl.cluster.doctor import probe_pods, troubles
from gpuctl.cluster.doctor.diagnose import run_checks
from gpuctl.cluster.doctor.flow import _redacted
from gpuctl.cluster.doctor.model import Facts, PodFacts
from gpuctl.domain.findings import Verdict
from gpuctl.remote.supervisor import frames
from tests.rig import damaged_json
from tests.rig.cluster.environments import facts

TOKEN = "tok "  # noqa: S105
# Names below these are anybody's.
OPEN = ("variables", "files", "pressure", "pod_pressure", "nodes", "interfaces", "unread")


@pytest.fixture
def whole(tmp_path: Path) -> Facts:
    found = facts(tmp_path)
    answer = found.inside["lab-1"].values
    for rank in answer["jobs"]["ranks"][1:]:
        answer["jobs"]["ranks"].remove(rank)
    answer["nccl_logs"]["files"] = [{"live": True, "age_s": 3, "lines": ["a:1:1 [0] NCCL WARN x"]}]
    return found


def parsed(whole: Facts, text: str) -> PodFacts:
    """What an answer with this JSON text comes to."""
    request = probe_pods.request(whole.env, ["lab-0", "lab-1"], "lab-1")
    request["folders"] = list(whole.inside["lab-1"].values["disk"])
    packed = base64.b64encode(zlib.compress(text.encode()))
    answer = probe_pods._parse(b"hello\n" + TOKEN.encode() + packed + b"\n", TOKEN, request)
    assert answer is not None
    return answer


def diagnosed(whole: Facts, answer: PodFacts) -> None:
    inside = _redacted({"lab-0": whole.inside["lab-0"], "lab-1": answer})
    changed = Facts(**{**vars(whole), "inside": inside})
    for name in ("hang", "slow"):
        diagnosis = run_checks(troubles.TROUBLES[name], changed)
        if answer.why:
            assert diagnosis.verdict is not Verdict.OK


def test_a_true_answer_is_accepted(whole: Facts) -> None:
    answer = parsed(whole, json.dumps(whole.inside["lab-1"].values))
    assert answer.why == ""
    assert answer.values == whole.inside["lab-1"].values


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data(), st.sampled_from([*damaged_json.HOSTILE, "missing"]))
def test_a_damaged_part_is_refused_at_any_depth(whole: Facts, data: st.DataObject, text: str) -> None:
    values: dict[str, Any] = dict(whole.inside["lab-1"].values)
    place = data.draw(st.sampled_from(list(damaged_json.paths(values))))
    check(whole, place, text)


def check(whole: Facts, place: damaged_json.Path, text: str) -> None:
    values: dict[str, Any] = dict(whole.inside["lab-1"].values)
    missing = text == "missing" and bool(place)
    answer = parsed(
        whole, damaged_json.without(values, place) if missing else damaged_json.replaced(values, place, text)
    )
    diagnosed(whole, answer)
    if missing:
        assert answer.why or place[-1] == 0 or place[-2] in OPEN
    elif not answer.why:
        kinds = {type(json.loads(text)), type(damaged_json.part(values, place))}
        assert len(kinds - {type(None), int, float}) < 2 or place[:2] == ("network", "names")
        assert text not in damaged_json.NO_NUMBERS


def test_a_compressed_answer_is_not_unpacked_without_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames, "MOST", 1 << 16)
    bomb = zlib.compress(b"[" * (2 << 16))
    answer = probe_pods._parse(b"\n" + TOKEN.encode() + base64.b64encode(bomb) + b"\n", TOKEN, {})
    assert answer is not None
    assert answer.why == "its answer cannot be decoded: it is incomplete, or larger than 65536 bytes"
