"""The collection without `gpuctl`: anybody's ansible-playbook runs its playbooks, with check and diff."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.rig import Rig, TestHost
from tests.rig.command import Gpuctl, Said, reach
from tests.rig.snapshots import disk

PLAYBOOK = Path(sys.executable).with_name("ansible-playbook")
FEW = {"sysctl.vm.swappiness": 1, "thp.enabled": "never"}


@pytest.mark.parametrize("streamed", [True, False])
def test_tune_and_rollback_with_check_and_diff(gpuctl: Gpuctl, rig: Rig, host: TestHost, streamed: bool) -> None:
    def play(name: str, *words: object) -> Said:
        argv = [str(PLAYBOOK), f"gpuctl.fleet.{name}", "-i", rig.inventory(), *map(str, words)]
        env = {**gpuctl.environment(), "ANSIBLE_PIPELINING": str(streamed)}
        done = subprocess.run(argv, env=env, cwd=gpuctl.home, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return Said(done.returncode, done.stdout, done.stderr)

    profile = ("-e", f"host_profile_name={gpuctl.profile(FEW)}")
    untouched = disk(host)

    checked = play("tune_nodes", *profile, "--check", "--diff")
    assert (_changed(checked), disk(host), host.tree.writes()) == (1, untouched, [])
    assert "-value:/proc/sys/vm/swappiness: 60" in checked.out
    assert "+value:/proc/sys/vm/swappiness: 1" in checked.out

    applied = play("tune_nodes", *profile, "--diff")
    assert _changed(applied) == 1
    assert _diff(applied) == _diff(checked)
    assert host.read("/proc/sys/vm/swappiness") == "1\n"
    assert '"by": "root@' in host.read("/var/lib/gpuctl/records/000001.json")

    tuned = disk(host)
    host.tree.clear()
    assert _changed(play("tune_nodes", *profile)) == 0
    assert (disk(host), host.tree.writes()) == (tuned, [])

    back = play("rollback", "--check", "--diff")
    assert (_changed(back), disk(host), host.tree.writes()) == (1, tuned, [])
    assert _diff(play("rollback", "--diff")) == _diff(back)
    assert _changed(play("rollback")) == 0
    assert host.read("/proc/sys/vm/swappiness") == "60\n"
    assert '"by": "root@' in host.read("/var/lib/gpuctl/records/000002.json")
    assert host.exists("/root/.ansible/tmp") != streamed  # a module lies there while it runs, what is streamed does not


def test_a_streamed_task_needs_no_interpreter_of_the_inventory_and_says_what_is_wrong(
    gpuctl: Gpuctl, host: TestHost
) -> None:
    def play(arguments: str, **variables: str) -> str:
        known = reach(host)
        known.pop("ansible_python_interpreter", None)
        inventory = gpuctl.inventory({host.name: {**known, **variables}})
        task = ["-m", "gpuctl.fleet.host_rollback", "-a", arguments]
        argv = [str(PLAYBOOK.with_name("ansible")), "all", "-i", str(inventory), *task]
        env = {**gpuctl.environment(), "ANSIBLE_PIPELINING": "True"}
        done = subprocess.run(argv, env=env, cwd=gpuctl.home, capture_output=True, text=True, check=False)
        return done.stdout + done.stderr

    assert '"knobs": []' in play("to=")
    assert not host.exists("/root/.ansible/tmp")
    assert "Unsupported parameters for" in play("too=1")
    assert "there is no record 000007 (this host has none)" in play("to=000007")
    assert "/usr/bin/python9" in play("to=", ansible_python_interpreter="/usr/bin/python9")
    host.run("sh", "-c", "chmod a-x /usr/bin/python3*")
    assert "it has no Python (install python3 there)" in play("to=")


def _changed(said: Said) -> int:
    found = re.search(r"changed=(\d+)", said.out)
    assert found, said.out
    return int(found[1])


def _diff(said: Said) -> list[str]:
    return [line for line in said.out.splitlines() if re.match(r"[-+](value|line|file|unit)\b", line)]
