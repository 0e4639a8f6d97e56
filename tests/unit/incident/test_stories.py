"""Incidents of known causes from the first step to the last: the cause is named, and no remedy is wrong."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from gpuctl.core.errors import InvalidInput
from gpuctl.core.paths import state_dir
from gpuctl.domain.findings import fail, unknown
from gpuctl.incident import decide, postmortem, record
from gpuctl.incident.cause import cause, unknowns
from gpuctl.incident.model import Answer, Certainty, Incident, State, Step
from gpuctl.incident.remedies import remedy
from gpuctl.pages import markdown
from gpuctl.pages import page as pages
from gpuctl.workflows.incident import flow
from gpuctl.workflows.recorded_act import recorded
from tests.rig import incident_stories as stories
from tests.rig.incident_stories import REQUEST, Killed, StandinWatch, StandinWorkflows

ALL = [Step.LOG, Step.NODES, Step.PREFLIGHT, Step.TEST, Step.ISOLATE, Step.AUDIT]
CURE = [Step.DRAIN, Step.REPAIR, Step.RETEST, Step.UNDRAIN, Step.RESUME]


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUCTL_STATE_DIR", str(tmp_path))


def handled(
    answers: Mapping[Step, Answer],
    workflows: StandinWorkflows | None = None,
    watch: StandinWatch | None = None,
    slurm: bool = False,
) -> Incident:
    request = replace(REQUEST, slurm=slurm)
    return flow.go_on(flow.new(request), workflows or StandinWorkflows(answers), watch or StandinWatch())


def steps(incident: Incident) -> list[Step]:
    return [one.step for one in incident.entries]


def test_a_node_without_its_fabric_is_cured_tested_again_and_the_job_resumed() -> None:
    end = handled(stories.EFA)
    assert steps(end) == [*ALL, *CURE]
    assert (cause(end).certainty, cause(end).nodes) == (Certainty.PROVEN, ("n3",))
    assert decide.is_cured(end)
    assert end.entries[7].options["service"] == "efa"
    assert (end.entries[8].options["of"], end.entries[8].command) == ("isolate", end.entries[4].command)


@pytest.mark.parametrize(
    ("answers", "certainty", "nodes", "name"),
    [
        pytest.param(stories.DEAD_GPU, Certainty.LIKELY, ("n2",), "reset GPU 3", id="a dead GPU"),
        pytest.param(stories.STRAGGLER, Certainty.LIKELY, ("n4",), "drain and replace", id="a straggler by clocks"),
        pytest.param(stories.FULL, Certainty.PROVEN, (), None, id="a full file system"),
        pytest.param(stories.BAD_CODE, Certainty.LIKELY, (), None, id="a bad rank's code"),
        pytest.param(stories.NOTHING, Certainty.UNKNOWN, (), None, id="nothing wrong"),
    ],
)
def test_the_remedy_fits_the_cause(
    answers: Mapping[Step, Answer], certainty: Certainty, nodes: tuple[str, ...], name: str | None
) -> None:
    workflows = StandinWorkflows(answers)
    end = handled(answers, workflows)
    chosen = remedy(end)
    assert (cause(end).certainty, cause(end).nodes, chosen and chosen.name) == (certainty, nodes, name)
    if name is None:
        assert workflows.acts == []


def test_a_dead_gpu_is_audited_again_after_its_reset() -> None:
    end = handled(stories.DEAD_GPU)
    assert end.entries[-3].options == {"of": "audit", "nodes": []}
    assert decide.is_cured(end)


def test_a_node_that_no_repair_fits_stays_drained_and_the_job_goes_on_without_it() -> None:
    end = handled(stories.STRAGGLER)
    assert steps(end)[-2:] == [Step.DRAIN, Step.RESUME]
    assert not decide.is_cured(end)
    assert "n4 stays drained" in markdown.render(postmortem.page(end))


def test_a_fault_of_the_program_starts_no_test() -> None:
    assert steps(handled(stories.BAD_CODE)) == [Step.LOG, Step.NODES]


def test_a_retest_that_fails_keeps_the_node_drained() -> None:
    end = handled({**stories.EFA, Step.RETEST: stories.isolated("n3", transport="n3")})
    assert Step.UNDRAIN not in steps(end)
    assert steps(end)[-1] is Step.RESUME
    assert not decide.is_cured(end)


@pytest.mark.parametrize(
    "retest", [Answer(State.UNKNOWN, "no answer"), stories.done(unknown("isolate", "n3", "untested"), faults=[])]
)
def test_a_retest_that_proves_nothing_is_no_cure(retest: Answer) -> None:
    end = handled({**stories.EFA, Step.RETEST: retest})
    assert (decide.is_cured(end), Step.UNDRAIN in steps(end)) == (False, False)


def test_on_slurm_the_node_is_drained_only_after_a_retest_that_failed() -> None:
    """srun reaches no drained node."""
    assert steps(handled(stories.EFA, slurm=True)) == [*ALL, Step.REPAIR, Step.RETEST, Step.RESUME]
    end = handled({**stories.EFA, Step.RETEST: stories.isolated("n3")}, slurm=True)
    assert steps(end) == [*ALL, Step.REPAIR, Step.RETEST, Step.DRAIN, Step.RESUME]


def test_a_refused_repair_is_not_made_and_the_node_stays_drained() -> None:
    workflows = StandinWorkflows(stories.EFA, refused=frozenset({Step.REPAIR}))
    end = handled(stories.EFA, workflows)
    assert workflows.acts == ["drain", "resume job"]
    assert "job 7 works there" in markdown.render(postmortem.page(end))


def test_what_is_declined_is_not_done() -> None:
    workflows = StandinWorkflows(stories.EFA)
    end = handled(stories.EFA, workflows, StandinWatch(declines=frozenset({Step.DRAIN, Step.REPAIR})))
    assert workflows.acts == []
    assert [one.consent for one in end.entries[6:]] == ["no", "no"]


def test_several_suspects_get_no_remedy() -> None:
    workflows = StandinWorkflows({**stories.EFA, Step.ISOLATE: stories.isolated("n1", "n3")})
    end = handled({}, workflows)
    assert (cause(end).nodes, workflows.acts) == (("n1", "n3"), [])


def test_a_slow_node_on_the_network_of_the_others_is_drained_not_restarted() -> None:
    end = handled({**stories.EFA, Step.ISOLATE: stories.isolated("n3")})
    assert steps(end)[6:] == [Step.DRAIN, Step.RESUME]


def test_another_fault_of_the_node_rules_out_the_driver() -> None:
    end = handled({**stories.EFA, Step.AUDIT: stories.done(fail("pcie", "n3", "x8 of x16"))})
    assert steps(end)[6:] == [Step.DRAIN, Step.RESUME]


def test_nodes_in_use_are_not_tested() -> None:
    end = handled({**stories.READ, Step.PREFLIGHT: stories.done(fail("idle", "n1", "processes on its GPUs"))})
    assert steps(end) == [Step.LOG, Step.NODES, Step.PREFLIGHT, Step.AUDIT]
    assert cause(end).certainty is Certainty.UNKNOWN


def test_what_could_not_be_read_is_unknown_in_the_post_mortem() -> None:
    end = handled({**stories.NOTHING, Step.AUDIT: Answer(State.UNKNOWN, "n2: no route to host")})
    assert "audit: n2: no route to host" in list(unknowns(end))
    assert cause(end).certainty is Certainty.UNKNOWN


# ---- interruptions ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("moment", ["after", "before"])
def test_killed_around_every_write_and_resumed_nothing_is_done_twice_and_nothing_lost(moment: str) -> None:
    whole, reference = StandinWatch(), StandinWorkflows(stories.EFA)
    end = handled(stories.EFA, reference, whole)
    for number in range(2, len(whole.saved) + 1):
        after, before = (number, None) if moment == "after" else (None, number)
        workflows, watch = StandinWorkflows(stories.EFA), StandinWatch(kill_after=after, kill_before=before)
        with pytest.raises(Killed):
            handled(stories.EFA, workflows, watch)
        left = plain(watch.saved[-1])
        again = flow.go_on(left, workflows, StandinWatch())
        assert workflows.acts == reference.acts, number
        assert steps(again) == steps(end), number
        assert [one.answer for one in again.entries] == [one.answer for one in end.entries], number
        assert again.entries[: max(0, len(left.entries) - 1)] == left.entries[:-1], number


@pytest.mark.parametrize("step", [Step.DRAIN, Step.REPAIR, Step.RESUME])
def test_killed_in_an_act_it_is_not_repeated_and_its_end_is_unknown(step: Step) -> None:
    workflows, watch = StandinWorkflows(stories.EFA, kill_in=step), StandinWatch()
    with pytest.raises(Killed):
        handled(stories.EFA, workflows, watch)
    end = flow.go_on(plain(watch.saved[-1]), workflows, StandinWatch())
    assert workflows.acts.count(str(step)) == 1
    answer = end.answer(step)
    assert answer is not None
    assert answer.state is State.UNKNOWN
    assert any("unfinished" in text for text in unknowns(end))


def plain(incident: Incident) -> Incident:
    """The incident as a later process reads it."""
    path = state_dir() / "incident.json"
    path.write_text(json.dumps(record.as_dict(incident)))
    return record.read(path)


def test_an_act_is_recognised_by_its_run_record() -> None:
    mark = ["incident", "i1", "step 8", "repair"]
    assert flow.outcome(mark) is None
    with pytest.raises(KeyboardInterrupt), recorded(mark, {"n3": {"act": "restart efa"}}):
        raise KeyboardInterrupt
    interrupted = flow.outcome(mark)
    assert interrupted is not None
    assert interrupted.state is State.UNKNOWN
    with recorded([*mark[:2], "step 9", "repair"], {"n3": {}}) as entry:
        entry.update("n3", status="done")
        entry.exit_code = 0
    complete = flow.outcome([*mark[:2], "step 9", "repair"])
    assert complete is not None
    assert complete.state is State.DONE


# ---- record and post-mortem ------------------------------------------------------------------------------------------


def test_the_record_is_read_back_as_it_was() -> None:
    end = handled(stories.EFA)
    record.write(end)
    assert record.read(record.path_of(end.name)) == end
    assert (record.path_of(end.name).stat().st_mode & 0o777) == 0o600


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"form": "gpuctl incident 1", "name": 3}'])
def test_a_damaged_record_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(InvalidInput, match="cannot read the incident"):
        record.read(tmp_path / "x.json")


def test_a_record_with_an_unknown_step_is_refused(tmp_path: Path) -> None:
    value = json.loads(json.dumps(record.as_dict(handled(stories.BAD_CODE))))
    value["entries"][0]["step"] = "dance"
    (tmp_path / "x.json").write_text(json.dumps(value))
    with pytest.raises(InvalidInput, match="damaged"):
        record.read(tmp_path / "x.json")


def test_two_processes_do_not_handle_one_incident() -> None:
    with record.locked("i1"), pytest.raises(InvalidInput, match="another process"), record.locked("i1"):
        pytest.fail("both have it")


def test_the_post_mortem_has_commands_numbers_cause_and_actions_in_both_forms() -> None:
    page = postmortem.page(handled(stories.EFA))
    text, html = markdown.render(page), pages.render(page)
    for part in ("gpuctl nccl isolate --inventory /inv.yml", "slower_percent", "94.0", "the NCCL tests prove", "n3"):
        assert part in html
        assert part.replace("_", "\\_") in text
    assert "no baseline" in text


def test_secrets_of_a_log_are_not_in_the_post_mortem() -> None:
    first = stories.log("NCCL warning", "n3")
    line_of_log = "password=hunter2hunter2"
    line = replace(first.findings[0], message=f"failed with {line_of_log}")
    end = handled({**stories.NOTHING, Step.LOG: replace(first, findings=(line,), summary=line_of_log)})
    page = postmortem.page(end)
    assert "hunter2" not in markdown.render(page) + pages.render(page)
