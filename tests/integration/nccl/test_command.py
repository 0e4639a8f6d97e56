"""`gpuctl nccl run` as a user types it, on real hosts with a stand-in for nccl-tests."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from pathlib import Path

from gpuctl.nccl.plan import COLLECTIVES
from tests.integration.nccl.cluster import USER, Cluster
from tests.rig.command import Gpuctl, Said, reach
from tests.rig.reports import valid_junit, valid_metrics

SHORT = ("--gpus-per-node", 2, "-b", "8M", "-e", "1G", "--timeout", 30, "--no-preflight")
Nodes = Callable[[int], Cluster]


def inventory(gpuctl: Gpuctl, nodes: Cluster, user: str = USER, prefix: str = "") -> Path:
    return gpuctl.inventory({prefix + host.name: reach(host, ansible_user=user) for host in nodes.hosts})


def run(gpuctl: Gpuctl, nodes: Cluster, *words: object) -> Said:
    return gpuctl("nccl", "run", "--inventory", inventory(gpuctl, nodes), *SHORT, *words)


def failures(said: Said) -> list[tuple[str, str]]:
    """What was found wrong: the rule and whom it names."""
    return [(one["check"], one["subject"]) for one in said.json["findings"] if one["verdict"] == "FAIL"]


def test_a_healthy_cluster_passes(gpuctl: Gpuctl, cluster: Nodes) -> None:
    nodes = cluster(4)
    said = run(gpuctl, nodes)
    assert said.code == 0, said.out + said.err
    assert "h1, h2 and 2 more: started" in said.err
    (row,) = [line.split() for line in said.out.splitlines() if "all_reduce" in line and "complete" in line]
    assert 350 < float(row[row.index("complete") + 1]) < 450
    assert nodes.left() == {}


def test_full_runs_every_collective_and_judges_each(gpuctl: Gpuctl, cluster: Nodes) -> None:
    nodes = cluster(3)
    settings = ("-n", 3, "-w", 1, "-d", "half", "-I")
    said = run(gpuctl, nodes, "--kind", "full", "-b", "8", "-e", "512M", "-f", "8", "-o", "json", *settings)
    assert said.code == 0, said.out + said.err
    found = {one["run"]["collective"]: one["run"] for one in said.json["launches"]}
    last = found["all_reduce"]["rows"][-1]
    assert (last["type"], bool(last["out_of_place"]["per_iteration"])) == ("half", True)
    assert list(found) == list(COLLECTIVES)
    assert {one["outcome"] for one in found.values()} == {"complete"}
    roots = {name: (one["rows"][-1]["redop"], one["rows"][-1]["root"]) for name, one in found.items()}
    assert (roots["reduce"], roots["broadcast"], roots["all_gather"]) == (("sum", 0), ("none", 0), ("none", -1))
    # Six ranks share 8 bytes: no whole element is left for each, and a row of size 0 is printed.
    assert found["all_gather"]["rows"][0]["size_bytes"] == 0
    assert found["sendrecv"]["rows"][-1]["in_place"]["wrong"] is None
    assert found["sendrecv"]["rows"][-1]["out_of_place"]["wrong"] == 0
    assert nodes.left() == {}


def test_a_collective_that_spoils_values_is_named(gpuctl: Gpuctl, pair: Cluster) -> None:
    pair.fabric("wrong h2 268435456")
    said = run(gpuctl, pair, "--kind", "full", "-b", "256M", "-e", "256M", "-o", "json")
    assert said.code == 1
    outcomes = {one["run"]["collective"]: one["run"]["outcome"] for one in said.json["launches"]}
    assert outcomes == dict.fromkeys(COLLECTIVES, "corrupt")


def test_a_split_round_of_pairs_is_one_launch(gpuctl: Gpuctl, cluster: Nodes) -> None:
    nodes = cluster(4)
    nodes.fabric("slow h4 0 0.5")
    said = run(gpuctl, nodes, "--kind", "pairs", "--split", "-o", "json")
    launches = said.json["launches"]
    assert [one["nodes"] for one in launches] == [
        ["h1", "h4", "h2", "h3"],
        ["h1", "h3", "h4", "h2"],
        ["h1", "h2", "h3", "h4"],
    ]
    assert {one["run"]["outcome"] for one in launches} == {"complete"}
    assert all(180 < one["run"]["max_busbw_gbs"] < 220 for one in launches)
    assert nodes.left() == {}


def test_pairs_across_racks_accuse_nobody_where_racks_are_not_known(gpuctl: Gpuctl, cluster: Nodes) -> None:
    nodes = cluster(4)
    nodes.fabric("rack h1 q", "rack h2 q", "rack h3 r", "rack h4 r", "uplink q 0.7", "uplink r 0.7")
    said = run(gpuctl, nodes, "--kind", "pairs", "-o", "json")
    found = [one for one in said.json["findings"] if one["check"] == "pairs"]
    assert [one["verdict"] for one in found] == ["UNKNOWN"]
    assert "(h1, h2; h3, h4)" in found[0]["message"]


def test_pairs_name_the_slow_node(gpuctl: Gpuctl, cluster: Nodes) -> None:
    nodes = cluster(4)
    nodes.fabric("slow h3 5 0.5")
    said = run(gpuctl, nodes, "--kind", "pairs", "-o", "json")
    assert said.code == 1
    assert len(said.json["launches"]) == 6
    assert ("pairs", "h3") in failures(said)
    assert not {subject for rule, subject in failures(said) if rule == "pairs"} - {"h3"}


def test_sockets_are_a_failure_of_the_node_that_fell_back(gpuctl: Gpuctl, pair: Cluster) -> None:
    pair.fabric("tcp h2")
    said = run(gpuctl, pair, "--network", "efa", "-o", "json")
    assert said.code == 1
    assert ("transport", "h2") in failures(said)


def test_a_dead_adapter_is_a_failure_of_its_node(gpuctl: Gpuctl, pair: Cluster) -> None:
    pair.fabric("dead h2 7")
    said = run(gpuctl, pair, "-o", "json")
    assert said.code == 1
    assert ("transport", "h2") in failures(said)


def test_wrong_values_fail(gpuctl: Gpuctl, pair: Cluster) -> None:
    pair.fabric("wrong h1 1")
    metrics = gpuctl.home / "run.prom"
    said = run(gpuctl, pair, "-o", "junit", "--metrics", metrics)
    assert said.code == 1
    assert "failure" in {kind for (check, _), kind in valid_junit(said.out).items() if check.endswith("corruption")}
    samples = valid_metrics(metrics.read_text())["gpuctl_check_severity"]
    assert {value for row, value in samples if row["check"] == "corruption"} == {3.0}


def test_a_hang_is_told_with_who_waited(gpuctl: Gpuctl, pair: Cluster) -> None:
    pair.fabric("hang h2 67108864")
    said = run(gpuctl, pair, "--timeout", 10, "-o", "json")
    assert said.code == 1
    (launch,) = said.json["launches"]
    assert (launch["run"]["outcome"], launch["waiting"]) == ("hung", {"h1": "waiting", "h2": "gone"})
    assert pair.left() == {}


def test_nodes_are_called_what_the_inventory_calls_them(gpuctl: Gpuctl, pair: Cluster) -> None:
    pair.fabric("crash h2 67108864")
    hosts = inventory(gpuctl, pair, prefix="gpu-")
    said = gpuctl("nccl", "run", "--inventory", hosts, *SHORT, "-o", "json")
    (launch,) = said.json["launches"]
    assert launch["nodes"] == ["gpu-h1", "gpu-h2"]
    assert {rank["host"] for rank in launch["run"]["ranks"]} == {"gpu-h1", "gpu-h2"}
    assert "gpu-h2" in launch["run"]["cause"]


def test_ctrl_c_leaves_nothing(gpuctl: Gpuctl, pair: Cluster) -> None:
    said = broken_off(gpuctl, pair, signal.SIGINT)
    assert said.code == 130
    assert "killed" in said.out
    assert pair.left() == {}


def test_a_gpuctl_that_was_killed_leaves_nothing_either(gpuctl: Gpuctl, pair: Cluster) -> None:
    broken_off(gpuctl, pair, signal.SIGKILL)
    wait_until(lambda: pair.left() == {})


def test_ctrl_c_half_way_through_pairs_leaves_nothing(gpuctl: Gpuctl, cluster: Nodes) -> None:
    nodes = cluster(4)
    nodes.fabric("pace_ms 400")
    running = gpuctl.start("nccl", "run", "--inventory", inventory(gpuctl, nodes), *SHORT, "-k", "pairs", "-o", "json")
    assert running.stderr is not None
    begun = 0
    while begun < 3:  # the second round has begun
        begun += "started" in running.stderr.readline()
    running.send_signal(signal.SIGINT)
    said = gpuctl.said(running)
    assert said.code == 130
    outcomes = [one["run"]["outcome"] for one in said.json["launches"]]
    assert (outcomes[:2], outcomes[2:]) == (["complete"] * 2, ["killed"] * 2)
    assert [one["lost"] for one in said.json["launches"]] == [[]] * 4
    assert nodes.left() == {}


def test_a_name_that_the_first_node_cannot_resolve_is_the_cause(gpuctl: Gpuctl, pair: Cluster) -> None:
    (pair["h1"].root / "etc/hosts").write_text("127.0.0.1 localhost h1\n")
    said = run(gpuctl, pair, "--use-inventory-names")
    assert said.code == 3
    assert "h2: the first node cannot resolve its name" in said.out


def test_a_node_without_open_mpi_is_the_cause(gpuctl: Gpuctl, pair: Cluster) -> None:
    (pair["h2"].root / "usr/bin/orted").unlink()
    said = run(gpuctl, pair)
    assert said.code == 3
    assert "Open MPI is not installed, or not on the PATH, on another node" in said.out


def test_what_mpirun_says_first_is_the_cause(gpuctl: Gpuctl, pair: Cluster) -> None:
    (pair["h1"].root / "etc/openmpi/openmpi-mca-params.conf").write_text("rmaps_base_no_schedule_local = 1\n")
    said = run(gpuctl, pair)
    assert said.code == 3
    assert "mpirun finds too few places for the ranks" in said.out


def test_nothing_is_installed(gpuctl: Gpuctl, pair: Cluster) -> None:
    for host in pair.hosts:
        (host.root / "usr/local/bin/all_reduce_perf").unlink()
    said = run(gpuctl, pair)
    assert said.code == 3
    assert "h1: all_reduce_perf is not installed there: build it" in said.out


def test_root_has_to_say_so(gpuctl: Gpuctl, pair: Cluster) -> None:
    for host in pair.hosts:
        host.run("cp", "-rT", f"/home/{USER}/.ssh", "/root/.ssh")
        host.run("chown", "-R", "root:root", "/root/.ssh")
    hosts = inventory(gpuctl, pair, user="root")
    said = gpuctl("nccl", "run", "--inventory", hosts, *SHORT)
    assert said.code == 3
    assert "mpirun does not run as root: log in as a user, or give --as-root" in said.out
    said = gpuctl("nccl", "run", "--inventory", hosts, *SHORT, "--as-root", "--env", "NCCL_ALGO=Ring")
    assert said.code == 0, said.out + said.err


def test_what_cannot_be_used_is_refused_before_anything_runs(gpuctl: Gpuctl, pair: Cluster) -> None:
    secret = gpuctl.inventory({"h1": reach(pair.hosts[0], ansible_ssh_executable="myssh")}, "secret.yml")
    one = gpuctl.inventory({"h1": reach(pair.hosts[0])}, "one.yml")
    said = gpuctl("nccl", "run", "--inventory", secret, "--via", "ssh")
    assert (said.code, "reached through Ansible only" in said.err) == (2, True)
    said = gpuctl("nccl", "run", "--inventory", one, "--kind", "pairs")
    assert (said.code, "there is only one node" in said.err) == (2, True)
    said = gpuctl("nccl", "run", "--inventory", one, "-b", "8 apples")
    assert (said.code, "is not a size" in said.err) == (2, True)


def test_a_node_in_use_keeps_the_run_from_beginning(gpuctl: Gpuctl, pair: Cluster) -> None:
    pair["h2"].write("/usr/bin/sinfo", "#!/bin/sh\n# stands in for sinfo\necho allocated\n", mode=0o755)
    pair["h2"].write("/etc/slurm/slurm.conf", "")
    words = [word for word in SHORT if word != "--no-preflight"]
    said = gpuctl("nccl", "run", "--inventory", inventory(gpuctl, pair), *words)
    assert said.code == 1
    assert "h2" in next(line for line in said.err.splitlines() if line.startswith("FAIL"))
    assert "nothing was run" in said.err
    assert "started" not in said.err


def test_a_run_begins_where_preflight_finds_nothing_wrong(gpuctl: Gpuctl, pair: Cluster) -> None:
    words = [word for word in SHORT if word != "--no-preflight"]
    said = gpuctl("nccl", "run", "--inventory", inventory(gpuctl, pair), *words, "--nodes", "h2,h1", "-o", "json")
    assert said.code in {0, 1}, said.err
    (launch,) = said.json["launches"]
    assert launch["nodes"] == ["h2", "h1"]
    assert [rank["host"] for rank in launch["run"]["ranks"]] == ["h2", "h2", "h1", "h1"]


def test_a_host_that_gives_no_answer_keeps_a_test_over_all_from_beginning(gpuctl: Gpuctl, pair: Cluster) -> None:
    pair["h2"].stop()
    words = [word for word in SHORT if word != "--no-preflight"]
    said = gpuctl("nccl", "run", "--inventory", inventory(gpuctl, pair), *words)
    assert said.code == 3
    assert "h2 gave no answer; nothing was run" in said.err
    assert "all:!h2" in said.err


def broken_off(gpuctl: Gpuctl, nodes: Cluster, number: signal.Signals) -> Said:
    nodes.fabric("pace_ms 2000")
    running = gpuctl.start("nccl", "run", "--inventory", inventory(gpuctl, nodes), *SHORT)
    wait_until(lambda: all("all_reduce_perf" in nodes.processes(host) for host in nodes.hosts))
    running.send_signal(number)
    return gpuctl.said(running)


def wait_until(done: Callable[[], bool], limit_s: float = 30) -> None:
    end = time.monotonic() + limit_s
    while not done():
        assert time.monotonic() < end, "it never became so"
        time.sleep(0.2)


def test_isolate_names_the_bad_node_and_prints_its_proof(gpuctl: Gpuctl, cluster: Nodes) -> None:
    nodes = cluster(6)
    nodes.fabric("slow h4 1 0.5")
    words = ("--gpus-per-node", 2, "-b", "256M", "-e", "1G", "--timeout", 60)
    said = gpuctl("nccl", "isolate", "--inventory", inventory(gpuctl, nodes), *words)
    assert said.code == 1
    accused = [line for line in said.out.splitlines() if line.startswith("FAIL")]
    assert accused, said.out + said.err
    assert all("h4" in line for line in accused)
    assert nodes.left() == {}
