"""Incidents of known causes from the first step to the last: the cause is named, and no remedy is wrong."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from gpuctl.core.errors import GpuctlError, InvalidInput
from gpuctl.core.paths import state_dir
from gpuctl.domain.findings import Finding, Verdict, fail, ok, unknown
from gpuctl.domain.gpu_health import RESET
from gpuctl.incident import acts, decide, postmortem, record
from gpuctl.incident.cause import also, cause, unknowns
from gpuctl.incident.model import Answer, Certainty, Entry, Incident, State, Step
from gpuctl.incident.remedies import Kind, remedy
from gpuctl.pages import markdown
from gpuctl.pages import page as pages
from gpuctl.workflows.incident import flow
from gpuctl.workflows.incident.acts import Ask
from gpuctl.workflows.recorded_act import Begin
from tests.rig import incident_stories as stories
from tests.rig.incident_stories import REQUEST, Killed, StandinWatch, StandinWorkflows

READINGS = [Step.LOG, Step.NODES, Step.PREFLIGHT, Step.TEST, Step.ISOLATE, Step.AUDIT]
DECLINED = [*READINGS, Step.DRAIN]
ALL = [*DECLINED, Step.REPAIR]
CURED = [*ALL, Step.RETEST, Step.GIVE_BACK, Step.RESUME]
ECC = Finding("gpu-memory", "n2", Verdict.FAIL, "GPU 0-7: ECC is Disabled, Enabled after a reset", hint=RESET)


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUCTL_STATE_DIR", str(tmp_path))


def handled(
    answers: Mapping[Step, Answer],
    workflows: StandinWorkflows | None = None,
    watch: StandinWatch | None = None,
    slurm: bool = False,
    resume_with: tuple[str, ...] = (),
) -> Incident:
    request = replace(REQUEST, slurm=True, inventory=None) if slurm else REQUEST
    request = replace(request, resume_with=resume_with)
    return flow.go_on(flow.new(request), workflows or StandinWorkflows(answers), watch or StandinWatch())


def steps(incident: Incident) -> list[Step]:
    return [one.step for one in incident.entries]


@pytest.mark.parametrize(
    ("answers", "certainty", "nodes", "name"),
    [
        pytest.param(stories.EFA, Certainty.PROVEN, ("n3",), "restart EFA's driver", id="no fabric"),
        pytest.param(stories.DEAD_GPU, Certainty.LIKELY, ("n2",), "reset GPU 3", id="a dead GPU"),
        pytest.param(stories.STRAGGLER, Certainty.UNKNOWN, (), None, id="an audit of a node that nothing names"),
        pytest.param(stories.FULL, Certainty.PROVEN, (), None, id="a full file system"),
        pytest.param(stories.BAD_CODE, Certainty.LIKELY, (), None, id="a bad rank's code"),
        pytest.param(stories.NOTHING, Certainty.UNKNOWN, (), None, id="nothing wrong"),
    ],
)
def test_the_remedy_fits_the_cause(
    answers: Mapping[Step, Answer], certainty: Certainty, nodes: tuple[str, ...], name: str | None
) -> None:
    end = handled(answers)
    chosen = remedy(end)
    assert (cause(end).certainty, cause(end).nodes, chosen and chosen.name) == (certainty, nodes, name)
    assert decide.is_explained(end) is (certainty is not Certainty.UNKNOWN)


def test_remedies_are_commands_to_run_by_hand() -> None:
    assert decide.closing_text(handled(stories.EFA)).endswith(
        "gpuctl nodes restart n3 efa --inventory /inv.yml\nnothing was changed"
    )
    assert "gpuctl nodes reset n2 --gpu 3 --inventory /inv.yml" in decide.closing_text(handled(stories.DEAD_GPU))


@pytest.mark.parametrize(
    ("audit", "slurm", "command"),
    [
        (
            stories.done(fail("pcie", "n3", "x8 of x16")),
            False,
            "gpuctl audit --inventory /inv.yml --limit n3 --act drain",
        ),
        (stories.done(fail("pcie", "n3", "x8 of x16")), True, "gpuctl audit --slurm --nodes n3 --act drain"),
        (stories.done(ok("pcie", "", "fine")), False, ""),
        (stories.done(ok("pcie", "", "fine")), True, "scontrol update NodeName=n3 State=DRAIN"),
    ],
)
def test_a_drain_is_proposed_by_a_command_that_drains_this_node(audit: Answer, slurm: bool, command: str) -> None:
    """`gpuctl audit` drains only what it fails."""
    chosen = remedy(handled({**stories.EFA, Step.ISOLATE: stories.isolated("n3"), Step.AUDIT: audit}, slurm=slurm))
    assert chosen is not None
    assert chosen.name == "drain and replace"
    assert chosen.command.startswith(command)
    assert bool(chosen.command) is bool(command)


@pytest.mark.parametrize("message", ["GPU 3: ECC is Disabled, Enabled after a reset", "GPU 3: a row remap is pending"])
def test_no_gpu_is_reset_for_a_network_that_is_down_or_a_setting(message: str) -> None:
    audit = stories.done(Finding("gpu-memory", "n3", Verdict.FAIL, message, hint=RESET), nodes=stories.NODES)
    for isolation in (stories.EFA[Step.ISOLATE], stories.isolated("n3")):
        chosen = remedy(handled({**stories.EFA, Step.ISOLATE: isolation, Step.AUDIT: audit}))
        is_reset = isolation is not stories.EFA[Step.ISOLATE] and "remap" in message
        assert chosen is not None
        assert (chosen.kind is Kind.RESET) is is_reset


def test_several_suspects_get_no_remedy() -> None:
    end = handled({**stories.EFA, Step.ISOLATE: stories.isolated("n1", "n3")})
    assert (cause(end).nodes, remedy(end)) == (("n1", "n3"), None)


# ---- proofs that are none --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("subject", ["every node", "", "n1", "n33"])
def test_an_isolation_that_does_not_accuse_the_node_proves_nothing(subject: str) -> None:
    before = stories.isolated("n3")
    answer = replace(before, findings=(fail("isolate", subject, "bad"),))
    end = handled({**stories.EFA, Step.ISOLATE: answer})
    assert (cause(end).certainty, remedy(end)) == (Certainty.UNKNOWN, None)


@pytest.mark.parametrize("tested", [[], ["n1", "n2"]])
def test_an_isolation_in_which_the_node_did_not_run_proves_nothing(tested: list[str]) -> None:
    before = stories.isolated("n3")
    end = handled({**stories.EFA, Step.ISOLATE: replace(before, details={**before.details, "tested": tested})})
    assert cause(end).certainty is Certainty.UNKNOWN
    assert any("no run shows anything about" in text and "n3" in text for text in unknowns(end))


def test_an_isolation_without_an_end_proves_nothing() -> None:
    end = handled({**stories.EFA, Step.ISOLATE: replace(stories.isolated("n3"), state=State.UNKNOWN)})
    assert cause(end).certainty is Certainty.UNKNOWN


def test_a_node_that_stopped_answering_is_unknown_and_gets_no_remedy() -> None:
    before = stories.isolated("n3")
    lost = {**before.details, "faults": [{"kind": "node", "names": ["n3"], "lost": True, "evidence": []}]}
    end = handled({**stories.EFA, Step.ISOLATE: replace(before, details=lost)})
    assert (cause(end).certainty, remedy(end)) == (Certainty.UNKNOWN, None)
    assert "isolate: n3 stopped answering, and why is not known" in list(unknowns(end))


def test_a_node_that_does_not_answer_is_unknown_and_nothing_is_tested() -> None:
    silent = stories.done(ok("idle", "", "no process"), unknown("reachable", "n2", "no route to host"))
    end = handled({**stories.READ, Step.PREFLIGHT: silent})
    assert steps(end) == [Step.LOG, Step.NODES, Step.PREFLIGHT, Step.AUDIT]
    assert (cause(end).certainty, remedy(end)) == (Certainty.UNKNOWN, None)


@pytest.mark.parametrize(
    "idle", [fail("idle", "n1", "processes on its GPUs"), unknown("idle", "n1", "hidden"), ok("mpi", "", "fine")]
)
def test_nodes_that_are_not_known_to_be_idle_are_not_tested(idle: Finding) -> None:
    end = handled({**stories.READ, Step.PREFLIGHT: stories.done(idle)})
    assert steps(end) == [Step.LOG, Step.NODES, Step.PREFLIGHT, Step.AUDIT]
    assert cause(end).certainty is Certainty.UNKNOWN


def test_an_audit_of_a_node_that_the_log_does_not_name_gives_no_suspect() -> None:
    end = handled({**stories.DEAD_GPU, Step.AUDIT: stories.done(fail("pcie", "n4", "x8 of x16"))})
    assert (cause(end).certainty, cause(end).nodes, remedy(end)) == (Certainty.UNKNOWN, (), None)
    assert also(end) == ["n4: pcie: x8 of x16"]
    assert "the audit also shows n4: pcie: x8 of x16" in decide.closing_text(end)
    assert "The audit also shows n4" in pages.render(postmortem.page(end))


@pytest.mark.parametrize(
    "finding",
    [ECC, *(fail(check, "n2", "wrong") for check in ("disks", "storage", "services", "compute-mode", "clock"))],
)
def test_storage_services_and_configuration_are_no_fault_of_hardware(finding: Finding) -> None:
    end = handled({**stories.DEAD_GPU, Step.AUDIT: stories.done(finding)})
    assert (cause(end).certainty, remedy(end)) == (Certainty.UNKNOWN, None)
    assert len(also(end)) == 1


@pytest.mark.parametrize(("node", "check"), [("n2", "disks"), ("n1", "pcie")])
def test_a_full_disk_is_proven_only_on_the_node_of_the_log(node: str, check: str) -> None:
    end = handled({**stories.FULL, Step.AUDIT: stories.done(fail(check, node, "wrong"))})
    assert (cause(end).certainty, cause(end).nodes) == (Certainty.LIKELY, ())


def test_a_full_disk_of_a_log_without_a_node_is_not_proven() -> None:
    assert cause(handled({**stories.FULL, Step.LOG: stories.log("disk full")})).certainty is Certainty.LIKELY


@pytest.mark.parametrize("kind", ["first process that ended", "cancelled"])
def test_what_only_ended_first_or_was_cancelled_is_not_the_program(kind: str) -> None:
    end = handled({**stories.NOTHING, Step.LOG: stories.log(kind)})
    assert "the program" not in cause(end).text
    assert steps(end)[-1] is Step.AUDIT
    assert Step.TEST in steps(end)


def test_a_node_failure_of_slurm_is_no_cause() -> None:
    first = {"kind": "cancelled", "line": 1, "text": "CANCELLED AT x DUE TO NODE FAILURE", "rank": None, "node": ""}
    end = handled({**stories.NOTHING, Step.LOG: stories.done(fail("job-log", "", "x"), first=first)})
    assert cause(end).certainty is Certainty.UNKNOWN


def test_a_fault_of_the_program_starts_no_test_and_is_audited() -> None:
    assert steps(handled(stories.BAD_CODE)) == [Step.LOG, Step.NODES, Step.AUDIT]


def test_what_could_not_be_read_is_unknown_in_the_post_mortem() -> None:
    end = handled({**stories.NOTHING, Step.AUDIT: Answer(State.UNKNOWN, "n2: no route to host")})
    assert "audit: n2: no route to host" in list(unknowns(end))
    assert cause(end).certainty is Certainty.UNKNOWN


# ---- acts ------------------------------------------------------------------------------------------------------------

SBATCH = ("sbatch", "train.sh")


def acted(answers: Mapping[Step, Answer], *, slurm: bool = False, resume_with: tuple[str, ...] = SBATCH) -> Incident:
    """Incident whose every question is answered with yes."""
    return handled(answers, None, StandinWatch(consents=True), slurm, resume_with)


def test_a_cured_node_is_given_back_and_the_job_resumed() -> None:
    end = acted(stories.CURED)
    assert steps(end) == CURED
    text = decide.closing_text(end)
    assert "repair: done: restart efa (run r2)\n" in text
    assert "resume job: done: sbatch train.sh: exit code 0 (run r3)\n" in text
    assert text.endswith("n3 passes again what it failed")
    commands = {one.step: one.command for one in end.entries}
    assert commands[Step.RETEST] == commands[Step.ISOLATE]
    assert commands[Step.GIVE_BACK] == "gpuctl nodes undrain n3 --inventory /inv.yml"


def test_a_node_that_fails_again_stays_drained_and_the_job_runs_without_it() -> None:
    end = acted(stories.NOT_CURED)
    assert steps(end) == [*ALL, Step.RETEST, Step.RESUME]
    assert decide.closing_text(end).endswith("n3 is not proven to be cured: it stays drained")
    assert "not proven to be cured" in markdown.render(postmortem.page(end))


@pytest.mark.parametrize(
    "retest",
    [
        Answer(State.UNKNOWN, "not started, as the nodes are not known to be idle"),
        replace(stories.isolated(), details={**stories.isolated().details, "tested": ["n1", "n2"]}),
        replace(stories.isolated(), findings=(unknown("isolate", "n3", "too few runs"),)),
        replace(stories.isolated(), findings=(fail("transport", "n3", "socket fallback"),)),
        replace(stories.isolated(), findings=(fail("isolate", "", "several nodes are bad"),)),
    ],
)
def test_a_test_that_proves_nothing_cures_nothing(retest: Answer) -> None:
    end = acted({**stories.CURED, Step.RETEST: retest})
    assert Step.GIVE_BACK not in steps(end)
    assert not acts.is_cured(end)


def test_another_node_that_is_bad_does_not_keep_a_cured_one() -> None:
    assert acts.is_cured(acted({**stories.CURED, Step.RETEST: stories.isolated("n1")}))


def test_a_reset_gpu_is_audited_again() -> None:
    reset = {**stories.CURED, **stories.DEAD_GPU, Step.REAUDIT: stories.READ[Step.AUDIT]}
    end = acted(reset)
    assert steps(end)[len(READINGS) :] == [*ALL[len(READINGS) :], Step.REAUDIT, Step.GIVE_BACK, Step.RESUME]
    for again in (stories.DEAD_GPU[Step.AUDIT], stories.done(unknown("gpu-memory", "n2", "nvidia-smi hangs"))):
        assert not acts.is_cured(acted({**reset, Step.REAUDIT: again}))


@pytest.mark.parametrize(
    "again",
    [
        stories.done(ok("gpu-memory", "", "fine")),
        stories.done(ok("gpu-memory", "", "fine"), nodes=["n1", "n3"]),
        stories.done(nodes=stories.NODES),
        stories.done(ok("pcie", "n1", "fine"), nodes=stories.NODES),
        *(
            stories.done(one(check, subject, "differs"), ok("pcie", "", "fine"), nodes=stories.NODES)
            for one, check in ((fail, "pcie"), (unknown, "gpu-memory"))
            for subject in ("n1 and n2", "n1, n2", "n1 and 7 more", "")
        ),
    ],
)
def test_an_audit_that_may_accuse_the_node_or_did_not_read_it_cures_nothing(again: Answer) -> None:
    assert not acts.is_cured(acted({**stories.CURED, **stories.DEAD_GPU, Step.REAUDIT: again}))


def test_an_audit_fail_of_other_nodes_does_not_keep_a_cured_one() -> None:
    others = [fail("pcie", name, "x8") for name in ("n1 GPU 0000:18:00.0", "n1 and n3")]
    again = stories.done(ok("clocks", "", "fine"), *others, nodes=stories.NODES)
    assert acts.is_cured(acted({**stories.CURED, **stories.DEAD_GPU, Step.REAUDIT: again}))


@pytest.mark.parametrize("subject", ["n2 and n3", "n2, n3", "n2 and 3 more"])
def test_a_fail_of_several_nodes_accuses_none_of_them(subject: str) -> None:
    assert remedy(handled({**stories.DEAD_GPU, Step.AUDIT: stories.done(fail("pcie", subject, "differs"))})) is None


@pytest.mark.parametrize(
    "repair",
    [
        Answer(State.REFUSED, "GPU 0: alice works there"),
        Answer(State.FAILED, "modprobe: in use", details={"begun": True}),
        Answer(State.UNKNOWN, "n3: no route to host"),
    ],
)
def test_after_a_repair_that_was_not_done_nothing_is_tested_and_the_node_stays_drained(repair: Answer) -> None:
    end = acted({**stories.CURED, Step.REPAIR: repair})
    assert steps(end) == [*ALL, Step.RESUME]
    is_begun = repair.state is State.FAILED
    assert ("proposed, to be run by hand" in decide.closing_text(end)) is not is_begun
    assert acts.is_finished_well(end) is not is_begun


def test_a_repair_of_unknown_end_is_tested() -> None:
    unclear = Answer(State.UNKNOWN, "the connection was lost", details={"begun": True})
    end = acted({**stories.CURED, Step.REPAIR: unclear})
    assert steps(end) == CURED
    assert not acts.is_finished_well(end)


def test_on_slurm_a_node_is_drained_only_if_the_repair_does_not_cure_it() -> None:
    """A test in an allocation cannot use a drained node."""
    assert steps(acted(stories.CURED, slurm=True)) == [*READINGS, Step.REPAIR, Step.RETEST, Step.RESUME]
    end = acted(stories.NOT_CURED, slurm=True)
    assert steps(end) == [*READINGS, Step.REPAIR, Step.RETEST, Step.DRAIN, Step.RESUME]


@pytest.mark.parametrize("answers", [stories.STRAGGLER, stories.FULL, stories.BAD_CODE, stories.NOTHING])
def test_without_a_suspect_there_is_no_act(answers: Mapping[Step, Answer]) -> None:
    end = acted(answers)
    assert steps(end)[-1] is Step.AUDIT
    assert decide.closing_text(end).endswith("no remedy is proposed\nnothing was changed")


def test_a_job_that_nobody_named_is_not_resumed() -> None:
    assert Step.RESUME not in steps(acted(stories.CURED, resume_with=()))


def test_a_job_does_not_go_back_to_a_suspect_that_is_neither_cured_nor_drained() -> None:
    drain = Answer(State.UNKNOWN, "scontrol: not on this host")
    assert Step.RESUME not in steps(acted({**stories.NOT_CURED, Step.DRAIN: drain}))


def test_a_drain_of_others_is_never_given_back() -> None:
    drain = Answer(State.DONE, "somebody else has drained it", details={"drained_by": acts.OTHERS})
    end = acted({**stories.CURED, Step.DRAIN: drain})
    assert steps(end) == [*DECLINED, Step.RESUME]


@pytest.mark.parametrize("state", [State.DECLINED, State.REFUSED, State.FAILED, State.UNKNOWN])
def test_a_node_that_this_incident_has_not_drained_is_neither_repaired_nor_gets_the_job(state: State) -> None:
    begun = state in (State.FAILED, State.UNKNOWN)
    drain = Answer(state, "not drained", details={"drained_by": "", "begun": begun})
    end = acted({**stories.CURED, Step.DRAIN: drain})
    assert steps(end) == DECLINED
    assert acts.is_left(end)
    assert (acts.has_changed(end), acts.is_finished_well(end)) == (begun, not begun)


@pytest.mark.parametrize("moment", ["before", "after"])
def test_killed_at_any_write_no_act_is_made_twice(moment: str) -> None:
    whole = StandinWatch(consents=True)
    end = handled(stories.CURED, None, whole, resume_with=SBATCH)
    for number in range(2, len(whole.saved) + 1):
        after, before = (number, None) if moment == "after" else (None, number)
        workflows = StandinWorkflows(stories.CURED)
        watch = StandinWatch(kill_after=after, kill_before=before, consents=True)
        with pytest.raises(Killed):
            handled(stories.CURED, workflows, watch, resume_with=SBATCH)
        again = flow.go_on(plain(watch.saved[-1]), workflows, StandinWatch(consents=True))
        assert [one.answer for one in again.entries] == [one.answer for one in end.entries], number
        assert workflows.acted == [Step.DRAIN, Step.REPAIR, Step.GIVE_BACK, Step.RESUME], number


# ---- interruptions ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("moment", ["before", "after"])
def test_killed_at_any_write_it_goes_on_without_repeating_what_has_a_result(moment: str) -> None:
    whole = StandinWatch()
    end = handled(stories.EFA, None, whole)
    assert steps(end) == DECLINED
    for number in range(2, len(whole.saved) + 1):
        after, before = (number, None) if moment == "after" else (None, number)
        workflows, watch = StandinWorkflows(stories.EFA), StandinWatch(kill_after=after, kill_before=before)
        with pytest.raises(Killed):
            handled(stories.EFA, workflows, watch)
        left = plain(watch.saved[-1])
        again = flow.go_on(left, workflows, StandinWatch())
        assert steps(again) == DECLINED, number
        assert [one.answer for one in again.entries] == [one.answer for one in end.entries], number


def test_without_an_answer_of_any_node_the_step_stays_open_and_is_repeated() -> None:
    workflows, watch = StandinWorkflows(stories.EFA), StandinWatch()
    workflows.errors[Step.TEST] = flow.NoAnswer("make the step", "no node answered")
    with pytest.raises(flow.NoAnswer):
        handled(stories.EFA, workflows, watch)
    left = plain(watch.saved[-1])
    assert left.current is not None
    assert left.current.step is Step.TEST
    end = flow.go_on(left, workflows, StandinWatch())
    assert (steps(end), workflows.made.count("NCCL test")) == (DECLINED, 2)


def plain(incident: Incident) -> Incident:
    """The incident as a later process reads it."""
    path = state_dir() / "incident.json"
    path.write_text(json.dumps(record.as_dict(incident)))
    return record.read(path)


def test_the_beginning_of_an_act_is_written_before_it_and_an_act_that_raises_was_begun() -> None:
    class StandinOfLostHosts(StandinWorkflows):
        def act(self, incident: Incident, entry: Entry, ask: Ask, begin: Begin) -> Answer:
            if entry.step is Step.DRAIN:
                return super().act(incident, entry, ask, begin)
            begin("r9")
            left = plain(watch.saved[-1])
            assert left.current is not None
            assert (left.current.step, left.current.begun) == (entry.step, "r9")
            raise GpuctlError("restart efa", "the program ended without an answer")

    watch = StandinWatch(consents=True)
    end = handled(stories.CURED, StandinOfLostHosts(stories.CURED), watch)
    answer = end.answer(Step.REPAIR)
    assert answer is not None
    assert (answer.state, answer.details) == (State.UNKNOWN, {"begun": True, "run": "r9"})
    assert (acts.has_changed(end), acts.is_finished_well(end)) == (True, False)


def test_a_record_of_an_earlier_version_does_not_name_the_runs_of_its_acts(tmp_path: Path) -> None:
    end = handled(stories.EFA)
    value = json.loads(json.dumps(record.as_dict(end)))
    for entry in value["entries"]:
        del entry["begun"]
    (tmp_path / "x.json").write_text(json.dumps(value))
    assert record.read(tmp_path / "x.json") == end


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
    for part in (
        "gpuctl nccl isolate --rails none --inventory /inv.yml",
        "slower_percent",
        "94.0",
        "the NCCL tests prove",
        "n3",
    ):
        assert part in html
        assert part.replace("_", "\\_") in text
    assert "no baseline" in text


def test_secrets_of_a_log_are_in_neither_the_record_nor_the_post_mortem() -> None:
    first = stories.log("NCCL warning", "n3")
    line_of_log = "password=hunter2hunter2"
    line = replace(first.findings[0], message=f"failed with {line_of_log}")
    end = handled({**stories.NOTHING, Step.LOG: replace(first, findings=(line,), summary=line_of_log)})
    page = postmortem.page(end)
    assert "hunter2" not in markdown.render(page) + pages.render(page)
    assert "hunter2" not in json.dumps(record.as_dict(end))
