"""The audit on real hosts: their sshd, systemd, disks, memory and processes are real; GPUs and the journal are played.

Stand-ins: nvidia-smi (the rig's, printing tests/data), journalctl (printing the kernel messages of the test), dcgmi.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from gpuctl.audit import knowledge
from gpuctl.domain.findings import Finding, Verdict
from gpuctl.hosts.model import Target
from gpuctl.workflows import audit, audit_bundle, audit_rules, diagnosis
from tests.integration.conftest import Hosts
from tests.rig import TestHost

XML = (Path(__file__).parents[1] / "data/nvidia-smi/570-h100-8gpu.xml").read_text()
SMI = "/var/lib/standins/nvidia-smi/q.xml"
BOOTED = "2026-11-27T03:00:00.000001+0000 n1 kernel: Linux version 6.8.0-45-generic"
PASSED = '{"DCGM GPU Diagnostic": {"test_categories": [{"category": "Deployment", "tests": [{"name": "NVML Library", \
"results": [{"status": "Pass"}]}]}]}}'
XID = "2026-11-27T03:00:09.000001+0000 n1 kernel: NVRM: Xid (PCI:0000:18:00): 79, GPU has fallen off the bus."


def furnish(host: TestHost, *messages: str) -> None:
    host.standin("nvidia-smi")
    host.write(SMI, XML)
    lines = "\\n".join((BOOTED, *messages))
    host.write("/usr/local/bin/journalctl", f"#!/bin/sh\n# stands in for journalctl\nprintf '{lines}\\n'\n", mode=0o755)
    host.tree.put("/proc/driver/nvidia/version", "NVIDIA UNIX x86_64 Kernel Module  570.86.15  Release", writable=False)


def targets(hosts: Sequence[TestHost], become: bool) -> list[Target]:
    """As the user admin logs in, who becomes root by sudo where `become` is set."""
    state = Path(hosts[0].plot.state)
    checks = ("-o", f"UserKnownHostsFile={state}/known_hosts", "-o", "StrictHostKeyChecking=yes")
    return [
        Target(host.name, host.ip, user="admin", key=f"{state}/id_ed25519", ssh_args=checks, become=become)
        for host in hosts
    ]


def run(hosts: Sequence[TestHost], become: bool = True) -> list[Finding]:
    fleet = audit.ask(targets(hosts, become), audit.AuditOptions(window_s=0.2), lambda _: None)
    return audit_rules.judge(fleet, knowledge.catalogue())


def failed(findings: Sequence[Finding]) -> set[tuple[str, str]]:
    return {(f.check, f.subject) for f in findings if f.verdict is Verdict.FAIL}


def test_faults_are_named_with_their_node_and_a_dead_one_is_unknown(hosts: Hosts) -> None:
    a, b, c = started = hosts(3, machine="p5")
    for host in started:
        furnish(host)
    healthy = run(started)
    assert failed(healthy) == set()
    assert {f.verdict for f in healthy if f.check in ("disks", "memory", "processes", "kernel-log")} <= {
        Verdict.OK, Verdict.WARN,
    }  # fmt: skip
    furnish(b, XID)
    b.write(SMI, XML.replace("<compute_mode>Default", "<compute_mode>Prohibited", 1))
    a.run("systemd-run", "--unit=slurmd", "false", check=False)
    c.stop()
    findings = run(started)
    assert failed(findings) >= {("xid", f"{b.name} GPU 0000:18:00.0"), ("compute-mode", b.name), ("services", a.name)}
    assert {subject.split()[0] for _, subject in failed(findings)} == {a.name, b.name}
    assert [(f.check, f.verdict) for f in findings if f.subject == c.name] == [("reachable", Verdict.UNKNOWN)]


def test_a_bundle_has_what_the_nodes_print_and_is_judged_like_them(hosts: Hosts, tmp_path: Path) -> None:
    (host,) = hosts(1, machine="p5")
    furnish(host, XID, BOOTED.replace("Linux version", "app: --password hunter22"))
    asked = audit.ask(targets([host], become=True), audit.AuditOptions(window_s=0.2, outputs=True), lambda _: None)
    fleet, outputs = audit_bundle.split(asked)
    audit_bundle.save(tmp_path / "b", audit.without_secrets(fleet), outputs)
    assert audit.judge_path(tmp_path / "b", knowledge.catalogue()) == audit_rules.judge(fleet, knowledge.catalogue())
    printed = {path.name: path.read_text() for path in (tmp_path / "b" / host.name).iterdir()}
    assert printed["nvidia-smi_-q_-x.xml"] == XML
    assert " /proc " in printed["mount.txt"]
    (journal,) = [text for name, text in printed.items() if name.startswith("journalctl") and name.endswith("_0.txt")]
    assert XID in journal
    assert not any("hunter22" in text for text in printed.values())


def test_a_user_without_rights_learns_what_could_not_be_read_and_nothing_is_ok_for_it(hosts: Hosts) -> None:
    (host,) = hosts(1, machine="p5")
    furnish(host)
    host.write(
        "/usr/local/bin/journalctl", "#!/bin/sh\n# stands in for journalctl\n[ $(id -u) = 0 ] || exit 1\n", mode=0o755
    )
    findings = run([host], become=False)
    (log,) = [f for f in findings if f.check == "kernel-log"]
    assert (log.subject, log.verdict) == (host.name, Verdict.UNKNOWN)


def test_a_diagnosis_outlives_the_call_that_started_it_and_the_next_one_reads_it(hosts: Hosts) -> None:
    """A real systemd runs it; dcgmi is a stand-in that takes three seconds and prints a recorded output."""
    (host,) = hosts(1, machine="p5")
    furnish(host)
    host.standin("dcgmi")
    for name, text in {"output": PASSED, "code": "0", "wait": "3", "calls": ""}.items():
        host.write(f"/var/lib/standins/dcgmi/{name}", text)
    chosen = targets([host], become=True)

    def call(limit_s: float) -> list[Finding]:
        fleet = audit.ask(chosen, audit.AuditOptions(window_s=0.2), lambda _: None)
        options = diagnosis.DeepOptions(2, pause_s=0.5, limit_s=limit_s)
        diagnosed, findings = diagnosis.diagnose(chosen, fleet, options, lambda _: None)
        judged = audit_rules.judge(diagnosed, knowledge.catalogue())
        return [*findings, *(finding for finding in judged if finding.check == "dcgm")]

    (left,) = call(limit_s=0.0)
    assert "it still runs after" in left.message
    assert host.run("systemctl", "is-active", "gpuctl-diagnosis").stdout.strip() == "active"
    (finding,) = call(limit_s=60.0)
    assert (finding.verdict, finding.subject) == (Verdict.OK, host.name)
    assert host.run("cat", "/var/lib/standins/dcgmi/calls").stdout.split("\n")[:-1] == ["diag -r 2 -j"]
    assert host.run("ls", "/run/gpuctl").stdout.split() == ["lock"]
