"""Selection of the nodes of a test and of the target that runs it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from gpuctl.cli.nccl.isolate import command as isolate
from gpuctl.cli.nccl.run import RunRequest
from gpuctl.cli.nccl.run import command as run
from gpuctl.cli.nccl.sweep_options import SweepRequest
from gpuctl.cli.shared import options
from gpuctl.core.errors import InvalidInput
from gpuctl.nccl.model import Sweep
from gpuctl.workflows.nccl_targets import gpus_per_node, node_access
from gpuctl.workflows.nccl_targets.model import EnvironmentOptions, HostOptions, NodeAccess, TargetRequest
from tests.rig.cluster.files import write


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an inventory, which Ansible reads once for all tests: gpuctl's cache is in it."""
    folder = tmp_path_factory.mktemp("shared")
    (folder / "fleet.ini").write_text("a rack=r1\nb rack=r2\nc\n")
    return folder


@pytest.fixture
def fleet(shared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("GPUCTL_CACHE_DIR", str(shared / "cache"))
    for name in ("STATE", "CONFIG"):
        monkeypatch.setenv(f"GPUCTL_{name}_DIR", str(tmp_path / name))
    return str(shared / "fleet.ini")


def access(inventory: str, nodes: str = "", **more: str) -> NodeAccess:
    return node_access(TargetRequest(nodes=nodes, hosts=HostOptions(inventory=inventory), **more), 8, print)  # type: ignore[arg-type]


def invoke(*words: str) -> Result:
    return CliRunner().invoke(run, words)


def test_all_hosts_are_tested_with_the_racks_that_are_known(fleet: str) -> None:
    hosts = access(fleet)
    assert (hosts.nodes, hosts.racks, hosts.where) == (["a", "b", "c"], {"a": "r1", "b": "r2"}, fleet)
    assert list(hosts.queryable) == hosts.nodes


def test_named_nodes_come_in_the_order_they_are_named_in(fleet: str) -> None:
    assert access(fleet, "c,a").nodes == ["c", "a"]


@pytest.mark.parametrize(("nodes", "wrong"), [("a,x", "x: no such host"), ("a,b,a", "named twice")])
def test_unknown_and_repeated_nodes_are_refused(fleet: str, nodes: str, wrong: str) -> None:
    with pytest.raises(InvalidInput, match=wrong):
        access(fleet, nodes)


def test_targets_that_exclude_each_other_are_refused_before_anything_is_touched(fleet: str) -> None:
    both = invoke("--inventory", fleet, "--image", "img")
    assert isinstance(both.exception, InvalidInput)
    assert "--inventory" in both.exception.wrong


@pytest.mark.parametrize(
    ("words", "wrong"),
    [
        (
            ("--cluster", "p5-efa-eks", "--limit", "a", "--via", "ssh"),
            "--limit, --via cannot be combined with --cluster",
        ),
        (("--cluster", "p5-efa-eks", "--slurm"), "--cluster cannot be combined with --slurm"),
        (
            ("--image", "img", "--slurm", "--user", "0", "--no-mpijob"),
            "--image, --user, --mpijob cannot be",
        ),
        (("--environment", "alice"), "--environment needs --cluster"),
        (("--no-mpijob",), "--mpijob needs --cluster or --image"),
        (("--cluster", "nobody-has-it"), "nobody-has-it"),
    ],
)
def test_options_of_several_targets_are_named_and_refused(fleet: str, words: tuple[str, ...], wrong: str) -> None:
    result = invoke(*words)
    assert isinstance(result.exception, InvalidInput)
    assert wrong in str(result.exception)


@pytest.mark.parametrize("option", ["--cluster", "--environment", "--image"])
def test_an_empty_variable_of_a_script_does_not_lead_to_other_machines(fleet: str, option: str) -> None:
    result = invoke(option, "")
    assert result.exit_code == 2
    assert f"'{option}': it is empty" in result.output


def test_a_node_has_eight_gpus_unless_the_option_or_a_cluster_file_differs(tmp_path: Path) -> None:
    lab = write(tmp_path, {"gpus": {"per_node": 4}})
    in_lab = gpus_per_node(TargetRequest(environment=EnvironmentOptions(cluster=str(lab))))
    assert (gpus_per_node(TargetRequest()), in_lab) == (8, 4)
    sweep = SweepRequest(begin=8, end=8, gpus=None, env=(), timeout=60)
    assert (sweep.sweep(in_lab).gpus_per_node, replace(sweep, gpus=2).sweep(in_lab).gpus_per_node) == (4, 2)


def test_options_of_nccl_tests_reach_the_sweep() -> None:
    words = ("-n", "200", "-w", "1", "-c", "0", "-d", "half", "--op", "avg", "-I")
    values = run.make_context("run", list(words)).params
    expected = Sweep(iterations=200, warmup=1, check=0, datatype="half", op="avg", per_iteration=True)
    assert options.build(RunRequest, values).sweep.sweep(8) == expected
    plain = run.make_context("run", []).params
    assert options.build(RunRequest, plain).sweep.sweep(8) == Sweep()


@pytest.mark.parametrize("words", [("-n", "0"), ("-w", "-1"), ("-c", "yes"), ("-d", "float16"), ("--op", "product")])
def test_values_that_nccl_tests_would_replace_are_refused(words: tuple[str, ...]) -> None:
    assert CliRunner().invoke(run, words).exit_code == 2


@pytest.mark.parametrize("command", [run, isolate])
def test_help_lists_options_under_the_target_they_are_for(command: object) -> None:
    text = CliRunner().invoke(command, ["--help"]).output  # type: ignore[arg-type]
    hosts, pods = text.index("On hosts, over ssh:"), text.index("In pods of a Kubernetes cluster")
    assert text.index("--nodes") < hosts < text.index("--use-inventory-names") < pods < text.index("--pull-secret")


def test_racks_are_still_known_when_the_inventory_was_read_before(fleet: str) -> None:
    first, second = (access(fleet).racks for _ in range(2))
    assert first == second == {"a": "r1", "b": "r2"}
    assert access(fleet, rack_var="other").racks == {}
