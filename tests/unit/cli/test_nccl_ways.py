"""Which nodes a test runs on, and by which way."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from gpuctl.cli.nccl.isolate import command as isolate
from gpuctl.cli.nccl.run import command as run
from gpuctl.cli.nccl.targets.select import complete, node_access
from gpuctl.core.errors import InvalidInput
from tests.unit.cluster.clusters import write


@pytest.fixture
def fleet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    for name in ("CACHE", "STATE", "CONFIG"):
        monkeypatch.setenv(f"GPUCTL_{name}_DIR", str(tmp_path / name))
    path = tmp_path / "fleet.ini"
    path.write_text("a rack=r1\nb rack=r2\nc\n")
    return str(path)


def options(**more: object) -> dict[str, object]:
    at_first = {param.name: param.default for param in run.params}
    plain = {name: None if callable(value) or "UNSET" in repr(value) else value for name, value in at_first.items()}
    return {**plain, "folders": (), "fabric": (), **more}


def said(*words: str) -> Result:
    return CliRunner().invoke(run, words)


def test_all_hosts_with_the_racks_that_are_known(fleet: str) -> None:
    way = node_access(**options(inventory=fleet))
    assert (way.nodes, way.racks, way.where) == (["a", "b", "c"], {"a": "r1", "b": "r2"}, fleet)
    assert list(way.queryable) == way.nodes


def test_named_nodes_come_in_the_order_they_are_named_in(fleet: str) -> None:
    assert node_access(**options(inventory=fleet, nodes="c,a")).nodes == ["c", "a"]


@pytest.mark.parametrize(("nodes", "wrong"), [("a,x", "x: no such host"), ("a,b,a", "named twice")])
def test_nodes_that_cannot_be_meant_are_refused(fleet: str, nodes: str, wrong: str) -> None:
    with pytest.raises(InvalidInput, match=wrong):
        node_access(**options(inventory=fleet, nodes=nodes))


def test_ways_that_exclude_each_other_are_refused_before_anything_is_touched(fleet: str) -> None:
    both = said("--inventory", fleet, "--image", "img")
    assert isinstance(both.exception, InvalidInput)
    assert "--inventory" in both.exception.wrong


@pytest.mark.parametrize(
    ("words", "wrong"),
    [
        (("--cluster", "p5-efa-eks", "--limit", "a", "--via", "ssh"), "--limit, --via is for hosts that ssh reaches"),
        (("--cluster", "p5-efa-eks", "--slurm"), "--cluster is for another way to the nodes"),
        (("--image", "img", "--slurm", "--user", "0", "--no-mpijob"), "--image, --user, --mpijob is for another way"),
        (("--environment", "alice"), "--environment is for a cluster file"),
        (("--no-mpijob",), "--mpijob is for pods"),
        (("--cluster", "nobody-has-it"), "nobody-has-it"),
    ],
)
def test_options_of_several_ways_are_named_and_refused(fleet: str, words: tuple[str, ...], wrong: str) -> None:
    found = said(*words)
    assert isinstance(found.exception, InvalidInput)
    assert wrong in str(found.exception)


@pytest.mark.parametrize("option", ["--cluster", "--environment", "--image"])
def test_an_empty_variable_of_a_script_does_not_lead_to_other_machines(fleet: str, option: str) -> None:
    found = said(option, "")
    assert found.exit_code == 2
    assert f"'{option}': it is empty" in found.output


def test_a_node_has_eight_gpus_unless_the_option_or_a_cluster_file_says_otherwise(tmp_path: Path) -> None:
    lab = write(tmp_path, {"gpus": {"per_node": 4}})
    assert complete(options())["gpus"] == 8
    assert complete(options(cluster=str(lab)))["gpus"] == 4
    assert complete(options(cluster=str(lab), gpus=2))["gpus"] == 2


@pytest.mark.parametrize("command", [run, isolate])
def test_help_lists_options_under_the_way_they_are_for(command: object) -> None:
    text = CliRunner().invoke(command, ["--help"]).output  # type: ignore[arg-type]
    hosts, pods = text.index("On hosts, over ssh:"), text.index("In pods of a Kubernetes cluster")
    assert text.index("--nodes") < hosts < text.index("--by-name") < pods < text.index("--pull-secret")


def test_racks_are_still_known_when_the_inventory_was_read_before(fleet: str) -> None:
    first, second = (node_access(**options(inventory=fleet)).racks for _ in range(2))
    assert first == second == {"a": "r1", "b": "r2"}
    assert node_access(**options(inventory=fleet, rack_var="other")).racks == {}
