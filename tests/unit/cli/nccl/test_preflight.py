"""Who looks at whom, facts in a file, and the commands that judge one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from gpuctl.cli.nccl.preflight import advise, preflight
from gpuctl.core.errors import InvalidInput
from gpuctl.nccl.preflight import facts_file
from gpuctl.nccl.preflight.facts_file import Fleet
from gpuctl.nccl.topology.login_checks import peers
from tests.rig.nccl.fleets import fleet
from tests.rig.reports import valid_json, valid_junit, valid_metrics


def call(command: Any, *words: object) -> Result:
    return CliRunner().invoke(command, [str(word) for word in words])


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    file = tmp_path / "facts.json"
    nodes = fleet(4, node_3=lambda facts: facts["gpu"]["gpus"].pop())
    for number, facts in enumerate(nodes.values()):
        facts["rack"] = f"r{number % 2}"
    facts_file.save(file, Fleet(nodes))
    return file


def test_the_first_node_reaches_all_and_the_others_the_next() -> None:
    found = peers(["a", "b", "c", "d"])
    assert found["a"].peers == ("b", "c", "d")
    assert [found[node].peers for node in "bcd"] == [("c",), ("d",), ("a",)]
    assert found["b"].look_up == ("c", "a")
    assert peers(["a"])["a"].peers == ()
    assert sum(len(own.peers) for own in peers([f"n{i}" for i in range(1024)]).values()) == 2046


def test_facts_come_back_from_a_file_as_they_were(tmp_path: Path) -> None:
    kept = Fleet(fleet(2), {"node-9": "no route"})
    facts_file.save(tmp_path / "f", kept)
    assert facts_file.read(tmp_path / "f") == kept


@pytest.mark.parametrize(
    "text", ["", "[]", '{"nodes": {}}', '{"form": 1, "nodes": {"a": {}}, "unasked": {}}', '{"form": 2, "nodes": {}}']
)
def test_a_file_of_another_form_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "f").write_text(text)
    with pytest.raises(InvalidInput):
        facts_file.read(tmp_path / "f")


def test_preflight_names_the_bad_node_of_a_file_and_exits_1(saved: Path) -> None:
    said = call(preflight, "--from", saved)
    assert said.exit_code == 1
    assert "FAIL     gpu-count       node-3: 7 GPUs answer, the node has 8" in said.output
    told = json.loads(call(preflight, "--from", saved, "-o", "json").output)
    assert [f["subject"] for f in told["findings"] if f["verdict"] == "FAIL"] == ["node-3"]


def test_preflight_of_the_healthy_nodes_alone_exits_0(saved: Path) -> None:
    assert call(preflight, "--from", saved, "--nodes", "node-1,node-2,node-4").exit_code == 0


def test_a_warning_exits_1_only_with_strict_and_is_then_a_failure_of_junit(tmp_path: Path) -> None:
    capped = {"slowed_by": ["sw_power_cap"], "power_limit_w": 500, "default_power_limit_w": 700}
    at_its_limit = fleet(2, node_2=lambda facts: facts["gpu"]["gpus"][0].update(capped))
    facts_file.save(tmp_path / "f", Fleet(at_its_limit))
    assert call(preflight, "--from", tmp_path / "f").exit_code == 0
    said = call(preflight, "--from", tmp_path / "f", "--strict", "-o", "junit")
    assert said.exit_code == 1
    assert '<failure message="GPU 0 is at its power limit, 500 W, by default 700 W" type="WARN">' in said.output


def test_a_node_that_was_not_reached_makes_exit_3(tmp_path: Path) -> None:
    facts_file.save(tmp_path / "f", Fleet(fleet(2), {"node-9": "it cannot be reached"}))
    said = call(preflight, "--from", tmp_path / "f")
    assert said.exit_code == 3
    assert "node-9: nothing is known of it: it cannot be reached" in said.output


@pytest.mark.parametrize("words", [("--nodes", "node-1,nod-2"), ("--inventory", "x"), ("--limit", "node-1")])
def test_what_cannot_be_meant_is_refused(saved: Path, words: tuple[str, str]) -> None:
    assert isinstance(call(preflight, "--from", saved, *words).exception, InvalidInput)


@pytest.mark.parametrize("command", [preflight, advise])
def test_a_file_with_facts_of_another_shape_is_refused_and_is_no_fault_of_ours(saved: Path, command: Any) -> None:
    told = json.loads(saved.read_text())
    told["nodes"]["node-2"]["rdma"]["ports"] = ["mlx5_0"]
    saved.write_text(json.dumps(told))
    said = call(command, "--from", saved)
    assert isinstance(said.exception, InvalidInput)
    assert "nodes.node-2.rdma.ports[0] is 'mlx5_0', not an object" in str(said.exception)


def test_of_many_findings_alike_the_first_are_shown_and_the_others_counted(tmp_path: Path) -> None:
    nodes = fleet(30)
    for number, facts in enumerate(nodes.values()):
        facts["gpu"]["gpus"][0]["recovery"] = f"Reset {number}"
    facts_file.save(tmp_path / "f", Fleet(nodes))
    said = call(preflight, "--from", tmp_path / "f").output
    assert said.count("the driver asks for") == 8
    assert "FAIL     gpu-memory      similar: node-9, " in said
    assert " and 14 more; --output json lists all" in said
    assert "30 nodes: 30 FAIL, " in said


def test_a_topology_that_cannot_be_used_is_told_before_anybody_is_asked(tmp_path: Path) -> None:
    (tmp_path / "topology.conf").write_text("nothing\n")
    said = call(advise, "--inventory", "no-such-inventory", "--topology", tmp_path / "topology.conf")
    assert "it places no node" in str(said.exception)


def test_without_racks_in_the_inventory_the_nodes_own_knowledge_orders_them(tmp_path: Path) -> None:
    nodes = fleet(4)
    for number, facts in enumerate(nodes.values()):
        for gpu in facts["gpu"]["gpus"]:
            gpu["nvlink_domain"] = f"5b5e4d3c-0000-4000-8000-00000000000{number % 2}.1"
    facts_file.save(tmp_path / "f", Fleet(nodes))
    said = call(advise, "--from", tmp_path / "f").output
    assert "a ring crosses racks 2 times, now 4 times" in said
    assert "racks are NVLink domains, from nvidia-smi:" in said


def test_advise_prints_lines_for_a_shell_and_the_order_of_nodes(saved: Path) -> None:
    said = call(advise, "--from", saved)
    assert said.exit_code == 0
    assert "export NCCL_IB_HCA='=mlx5_0," in said.output
    assert "a ring crosses racks 2 times, now 4 times" in said.output
    assert "--nodes node-1,node-3,node-2,node-4" in said.output


def test_advise_says_why_for_programs_too(saved: Path) -> None:
    told = valid_json(call(advise, "--from", saved, "-o", "json").output)
    assert (told["command"], told["exit_code"]) == ("nccl advise", 0)
    assert {finding["target"] for finding in told["findings"]} <= {str(saved)}
    assert told["environment"]["NCCL_NET"] == "IB"
    assert all(setting["why"] and setting["source"] for setting in told["settings"])
    assert (told["order"]["crossings_before"], told["order"]["crossings_after"]) == (4, 2)


def test_advise_takes_the_racks_of_a_topology_file(saved: Path, tmp_path: Path) -> None:
    (tmp_path / "topology.conf").write_text("SwitchName=s1 Nodes=node-[1-2]\nSwitchName=s2 Nodes=node-[3-4]\n")
    said = call(advise, "--from", saved, "--topology", tmp_path / "topology.conf")
    assert "a ring crosses racks 2 times, now 2 times" in said.output


def test_the_findings_of_a_fleet_are_a_report_for_ci_and_prometheus(saved: Path, tmp_path: Path) -> None:
    metrics = tmp_path / "preflight.prom"
    done = call(preflight, "--from", saved, "-o", "junit", "--metrics", metrics)
    cases = valid_junit(done.output)
    assert (done.exit_code, cases["gpuctl.nccl.preflight.gpu-count", "node-3"]) == (1, "failure")
    samples = valid_metrics(metrics.read_text())
    assert [value for _, value in samples["gpuctl_last_run_exit_code"]] == [1.0]
    assert valid_json(call(preflight, "--from", saved, "-o", "json").output)["nodes"]


def test_metrics_that_cannot_be_written_are_refused_before_anything_is_judged(saved: Path, tmp_path: Path) -> None:
    done = call(preflight, "--from", saved, "--metrics", tmp_path / "missing/x.prom")
    assert isinstance(done.exception, InvalidInput)
    assert done.output == ""
