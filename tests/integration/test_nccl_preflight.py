"""The preflight on real hosts: their sshd, users, limits, names and files are real; GPUs and EFA are played.

Stand-ins: nvidia-smi (the rig's, printing tests/data), fi_info, all_reduce_perf.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from gpuctl.domain.findings import Finding, Verdict
from gpuctl.hosts.model import Target
from gpuctl.nccl import preflight
from gpuctl.nccl.preflight.facts_file import Fleet
from gpuctl.workflows import nccl_preflight, preflight_facts
from tests.integration.conftest import Hosts
from tests.rig import Rig, TestHost

DATA = Path(__file__).parents[1] / "data"
XML = (DATA / "nvidia-smi/570-h100-8gpu.xml").read_text()
SMI = "/var/lib/standins/nvidia-smi"
TEST = "/opt/nccl-tests/build/all_reduce_perf"
EFA_DEVICES = 32


def fi_info(devices: int) -> str:
    """A stand-in that lists each device twice, as newer libfabric does."""
    domains = "\\n".join(f"    domain: rdmap{n}s0-rdm" for n in range(devices))
    version = 'case "$1" in --version) echo "libfabric: 2.6.0amzn1.0"; exit;; esac'
    return f"#!/bin/sh\n# stands in for fi_info\n{version}\nprintf '{domains}\\n{domains}\\n'\n"


def furnish(host: TestHost, hosts: Sequence[TestHost]) -> None:
    """All that a node of a training cluster has and a fresh host lacks."""
    state = Path(host.plot.state)
    host.standin("nvidia-smi")
    host.write(f"{SMI}/q.xml", XML)
    host.write("/usr/bin/fi_info", fi_info(EFA_DEVICES), mode=0o755)
    host.write(TEST, "#!/bin/sh\n# stands in for an all_reduce_perf that was built with libmpi.so\n", mode=0o755)
    host.write("/opt/amazon/ofi-nccl/lib/libnccl-net-ofi.so", "stands in for the plugin\n")
    host.tree.put("/sys/module/efa_nv_peermem/version", "1.2.2", writable=False)
    host.tree.put("/proc/driver/nvidia/version", "NVIDIA UNIX x86_64 Kernel Module  570.86.15  Release", writable=False)
    names = "".join(f"{other.ip} {other.name}.cluster {other.name}\n" for other in hosts)
    host.write("/etc/hosts", f"127.0.0.1 localhost\n{names}")
    host.write("/etc/ssh/ssh_known_hosts", (state / "known_hosts").read_text())
    host.write("/home/admin/.ssh/id_ed25519", (state / "id_ed25519").read_text(), mode=0o600)
    host.run("chown", "-R", "admin:admin", "/home/admin/.ssh")


@pytest.fixture
def cluster(hosts: Hosts) -> list[TestHost]:
    """Three p5 nodes that lack nothing but what this machine cannot give: memlock."""
    started = hosts(3, machine="p5")
    for host in started:
        furnish(host, started)
    return started


def targets(cluster: Sequence[TestHost], become: bool = True) -> list[Target]:
    """As the user admin logs in, who becomes root by sudo where `become` is set."""
    state = Path(cluster[0].plot.state)
    checks = ("-o", f"UserKnownHostsFile={state}/known_hosts", "-o", "StrictHostKeyChecking=yes")
    return [
        Target(host.name, host.ip, user="admin", key=f"{state}/id_ed25519", ssh_args=checks, become=become)
        for host in cluster
    ]


def ask(cluster: Sequence[TestHost], become: bool = True) -> Fleet:
    return preflight_facts.ask(targets(cluster, become), preflight_facts.FactsOptions(), lambda visit: None)


def wrong(found: Sequence[Finding]) -> list[tuple[str, str, Verdict]]:
    """What is not OK, without memlock: this machine's own limit is the hosts', too."""
    return [(f.check, f.subject, f.verdict) for f in found if f.verdict is not Verdict.OK and f.check != "memlock"]


@pytest.mark.parametrize("become", [True, False])
def test_healthy_nodes_pass_whether_asked_as_root_or_as_the_jobs_user(cluster: list[TestHost], become: bool) -> None:
    fleet = ask(cluster, become)
    assert wrong(preflight.judge(fleet.nodes, fleet.unasked)) == []
    for facts in fleet.nodes.values():
        assert facts["limits"]["user"] == facts["reach"]["user"] == "admin"
    first, *others = cluster
    assert set(fleet.nodes[first.name]["reach"]["peers"]) == {host.name for host in others}


def test_each_fault_is_named_with_its_node_in_one_trip(cluster: list[TestHost], rig: Rig) -> None:
    a, b, c = cluster
    last = XML.rindex("<gpu id=")
    b.write(f"{SMI}/q.xml", XML[:last] + "</nvidia_smi_log>")  # a GPU does not answer
    b.write("/usr/bin/fi_info", fi_info(EFA_DEVICES - 1), mode=0o755)  # nor does an EFA device
    b.write("/etc/ssh/ssh_known_hosts", "")  # it trusts nobody's key
    c.write(f"{SMI}/q.xml", XML.replace("<remapped_row_pending>No", "<remapped_row_pending>Yes", 1))
    c.write(TEST, "#!/bin/sh\n# stands in for another build, with libmpi.so\n", mode=0o755)
    c.write("/etc/security/limits.d/memlock.conf", "admin soft memlock 64\nadmin hard memlock 64\n")
    a.write("/etc/hosts", f"127.0.0.1 localhost\n{b.ip} {b.name}\n")  # it does not know c
    fleet = ask(cluster)
    found = preflight.judge(fleet.nodes, fleet.unasked)
    assert {(rule, node) for rule, node, verdict in wrong(found) if verdict is Verdict.FAIL} == {
        ("gpu-count", b.name),
        ("adapters", b.name),
        ("ssh", b.name),
        ("gpu-memory", c.name),
        ("nccl-tests", c.name),
        ("names", a.name),
    }
    (refused,) = [f for f in found if f.check == "ssh"]
    assert "user admin cannot log in to" in refused.message
    assert "Host key verification failed" in refused.message
    assert fleet.nodes[c.name]["limits"]["memlock"] == 64 * 1024  # of a login, not of the root that sudo made
    assert f"{c.name}" in {f.subject for f in found if f.check == "memlock"}


def test_a_process_on_a_gpu_and_a_dead_node_are_told(cluster: list[TestHost]) -> None:
    a, b, c = cluster
    begin = "<processes><process_info><pid>4711</pid><type>C</type><process_name>train.py</process_name>"
    end = "<used_memory>900 MiB</used_memory></process_info></processes>"
    busy = XML.replace("<processes>\n\t\t</processes>", begin + end, 1)
    assert busy != XML
    a.write(f"{SMI}/q.xml", busy)
    c.stop()
    fleet = ask([a, b, c])
    found = preflight.judge(fleet.nodes, fleet.unasked)
    said = {(f.check, f.subject): f.message for f in found}
    assert said["idle", a.name] == "processes on its GPUs: train.py (4711)"
    assert "nothing is known of it: it cannot be reached" in said["reachable", c.name]
    assert "it does not answer, and" in said["ssh", c.name]


def test_before_a_run_only_what_would_stop_or_spoil_it_is_asked(cluster: list[TestHost]) -> None:
    found = nccl_preflight.before(targets(cluster))
    assert {f.check for f in found} == {"idle", "nccl-tests", "mpi", "ssh", "names"}
    assert {f.verdict for f in found} == {Verdict.OK}
    assert nccl_preflight.stopping(found) == []


def test_before_a_run_a_job_forbids_it_and_what_is_not_known_does_not(cluster: list[TestHost]) -> None:
    a, b, c = cluster
    a.write("/usr/bin/sinfo", "#!/bin/sh\n# stands in for sinfo\necho mixed\n", mode=0o755)
    b.run("rm", TEST)
    c.run("rm", "/usr/bin/nvidia-smi")
    found = nccl_preflight.before(targets(cluster))
    assert [(f.check, f.subject) for f in nccl_preflight.stopping(found)] == [("idle", a.name), ("nccl-tests", b.name)]
    assert [(f.check, f.subject) for f in found if f.verdict is Verdict.UNKNOWN] == [("idle", c.name)]
    b.stop()
    found = nccl_preflight.before(targets(cluster))
    assert ("ssh", b.name) in {(f.check, f.subject) for f in nccl_preflight.stopping(found)}


def test_nodes_that_run_alone_need_neither_mpi_nor_each_other(cluster: list[TestHost]) -> None:
    a, b, c = cluster
    a.write("/etc/hosts", "127.0.0.1 localhost\n")
    b.write("/etc/ssh/ssh_known_hosts", "")
    c.write(TEST, "#!/bin/sh\n# stands in for a build of its own, without MPI\n", mode=0o755)
    c.run("rm", "/usr/bin/mpirun")
    assert {f.verdict for f in nccl_preflight.before(targets(cluster), alone=True)} == {Verdict.OK}
    c.run("rm", TEST)
    found = nccl_preflight.before(targets(cluster), alone=True)
    assert [(f.check, f.subject) for f in nccl_preflight.stopping(found)] == [("nccl-tests", c.name)]


def test_the_rails_are_those_every_node_has_and_none_on_efa(cluster: list[TestHost], hosts: Hosts) -> None:
    told = nccl_preflight.layout(targets(cluster))
    assert (told.rails, told.racks, told.racks_are) == ((), {}, "")
    first, second = hosts(2, machine="generic")
    assert nccl_preflight.layout(targets([first, second])).rails == ("mlx5_0", "mlx5_1")
    second.tree.remove("/sys/class/infiniband/mlx5_1/ports/1/state")
    assert nccl_preflight.layout(targets([first, second])).rails == ("mlx5_0",)
    second.stop()
    told = nccl_preflight.layout(targets([first, second]))
    assert (told.rails, told.devices[second.name]) == ((), None)
    assert told.devices[first.name] is not None


def test_hosts_of_an_nvl72_rack_know_it_by_themselves(cluster: list[TestHost]) -> None:
    for host in cluster[:2]:
        own = XML.replace("<clusterUuid>0000", "<clusterUuid>5b5e").replace("<cliqueId>0", "<cliqueId>7")
        host.write(f"{SMI}/q.xml", own)
    told = nccl_preflight.layout(targets(cluster))
    domain = "5b5e0000-0000-0000-0000-000000000000.7"
    assert told.racks == {cluster[0].name: domain, cluster[1].name: domain}
    assert told.racks_are == "NVLink domains, from nvidia-smi"


def test_hosts_with_one_name_may_not_run_together(cluster: list[TestHost]) -> None:
    for host in cluster[:2]:
        host.run("hostname", "ubuntu")
    found = nccl_preflight.stopping(nccl_preflight.before(targets(cluster)))
    shared = [f for f in found if f.check == "names"]
    assert [(f.subject, f.message) for f in shared] == [
        (f"{cluster[0].name} and {cluster[1].name}", "each has the host name ubuntu")
    ]


@pytest.mark.parametrize(("become", "verdicts"), [(True, {Verdict.OK}), (False, {Verdict.UNKNOWN})])
def test_processes_that_are_hidden_from_the_jobs_user_are_not_taken_for_none(
    cluster: list[TestHost], become: bool, verdicts: set[Verdict]
) -> None:
    for host in cluster:
        host.run("mount", "-o", "remount,hidepid=2", "/proc")
    fleet = ask(cluster, become)
    found = preflight.judge(fleet.nodes, fleet.unasked)
    assert {f.verdict for f in found if f.check == "idle"} == verdicts
    assert [f for f in found if f.verdict is Verdict.FAIL and f.check != "memlock"] == []


def test_nothing_is_left_behind_on_a_node(cluster: list[TestHost]) -> None:
    ask(cluster)  # the first time sudo itself leaves a mark in the user's home folder
    for host in cluster:
        host.tree.clear()
        host.run("touch", "/run/mark")
    ask(cluster)
    for host in cluster:
        assert host.tree.writes() == []
        folders = ("/etc", "/home", "/tmp", "/opt")  # noqa: S108
        left = host.run("find", *folders, "-newer", "/run/mark", "-type", "f").stdout
        assert left == ""
