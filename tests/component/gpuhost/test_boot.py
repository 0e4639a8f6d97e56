"""gpuctl-boot sets a run's values again at boot and after a driver reload; its installation and unit."""

from __future__ import annotations

import configparser
import errno
import re
import subprocess
import sys
from pathlib import Path

import pytest
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost import boot
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.host import Host
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.kinds import program as kind
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.model import Unsupported

from tests.rig.trees.hardware import CPU, GPU, NIC, Card, Pstate, Refusing, cards, irq, metal, of_cpus
from tests.rig.trees.host import content, link, program, put, states, tune

KNOBS = {"cpu.governor": "performance", "cpu.idle_latency_us": "10", "irq.affinity": "node", "thp.enabled": "always"}
GOVERNOR = "cpufreq/scaling_governor"
VOLATILE = ("sys/", "proc/")


def restart(root: Path, started: dict[str, str]) -> None:
    """Reboot the machine: its kernel files get their initial content."""
    for path, text in started.items():
        if path.startswith(VOLATILE):
            put(root, path, text)


def installed(root: Path, name: str) -> list[str]:
    """The command line of an installed program of ours, run by this Python."""
    return [sys.executable, "-IB", str(root / name)]


def test_after_a_reboot_everything_is_as_the_run_had_set_it(tmp_path: Path) -> None:
    root = cards(metal(tmp_path), Card("0000:10:00.0", NIC, 0, (30,)), Card("0000:9b:00.0", GPU, 1, (40,)))
    started = content(root)
    tune(root, KNOBS)
    before = {path: text for path, text in content(root).items() if path.startswith("sys/dev") or "/irq/" in path}
    restart(root, started)
    assert boot.main([str(root)]) == 0
    assert {path: content(root)[path].strip() for path in before} == {p: t.strip() for p, t in before.items()}


def test_a_second_pass_writes_nothing(tmp_path: Path) -> None:
    root = cards(metal(tmp_path), Card("0000:10:00.0", NIC, 0, (30,)))
    tune(root, KNOBS)
    host = Refusing(root)
    assert boot.apply_all(host) == []
    assert host.asked == []


def test_new_interrupt_numbers_after_a_driver_came_back_are_pinned(tmp_path: Path) -> None:
    root = cards(metal(tmp_path), Card("0000:10:00.0", NIC, 1, (30,)))
    tune(root, {"irq.affinity": "node"})
    (root / "sys/bus/pci/devices/0000:10:00.0/msi_irqs/30").unlink()
    cards(root, Card("0000:10:00.0", NIC, 1, (88, 89)))
    assert boot.main([str(root)]) == 0
    assert [irq(root, n) for n in (88, 89)] == ["2-3", "2-3"]


def test_interrupts_that_the_kernel_manages_are_no_failure(tmp_path: Path) -> None:
    root = cards(metal(tmp_path), Card("0000:10:00.0", NIC, 1, (30,)))
    put(root, boot.CONFIG, "irq.affinity node\n")
    assert boot.apply_all(Refusing(root, writes={"/irq/": errno.EIO})) == []


def test_offline_processors_are_no_failure(tmp_path: Path) -> None:
    root = metal(tmp_path)
    put(root, boot.CONFIG, f"{CPU}/cpu[0-9]*/{GOVERNOR} performance\n")
    assert boot.apply_all(Refusing(root, reads={"cpu3/cpufreq": errno.EBUSY})) == []
    assert of_cpus(root, GOVERNOR) == ["performance"] * 3 + ["schedutil"]


def test_lines_may_block_each_other_in_any_order(tmp_path: Path) -> None:
    preference = "cpufreq/energy_performance_preference"
    root = metal(tmp_path, ["performance"] * 4, offered="performance powersave")
    host = Pstate(root).preferences(*["balance_power"] * 4)
    put(root, boot.CONFIG, f"{CPU}/cpu*/{preference} power\n{CPU}/cpu*/{GOVERNOR} powersave\n")
    assert boot.main([], host) == 0
    assert of_cpus(root, preference) == ["power"] * 4


def test_a_line_that_fails_is_reported_and_does_not_stop_the_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = metal(tmp_path)
    put(root, boot.CONFIG, f"# ours\n\n/sys/gone 1\ncpu.idle_latency_us soon\n{CPU}/cpu0/{GOVERNOR} performance\n")
    assert boot.main([str(root)]) == 1
    errors = capsys.readouterr().err
    assert "/sys/gone: no such file on this host" in errors
    assert "cpu.idle_latency_us soon" in errors
    assert of_cpus(root, GOVERNOR)[0] == "performance"


def test_a_host_without_a_configuration_is_left_alone(tmp_path: Path) -> None:
    assert boot.main([str(tmp_path)]) == 0
    assert list(tmp_path.rglob("*")) == []


def test_the_program_works_as_it_is_installed_and_leaves_no_compiled_files(tmp_path: Path) -> None:
    root = metal(tmp_path)
    started = content(root)
    tune(root, {"cpu.governor": "performance"})
    restart(root, started)
    # On a host the starter names the folder by its absolute path; here that lies below the tree.
    starter = root / "usr/local/sbin/gpuctl-boot"
    starter.write_text(starter.read_text().replace('"/usr/local/lib', f'"{root}/usr/local/lib'))
    subprocess.run([*installed(root, "usr/local/sbin/gpuctl-boot"), str(root)], check=True, timeout=60)
    assert of_cpus(root, GOVERNOR) == ["performance"] * 4
    assert list(root.rglob("__pycache__")) == []


def test_the_unit_runs_after_other_owners_and_can_start_again() -> None:
    unit = kind.UNIT
    for other in ("tuned", "irqbalance", "cpupower", "cpufrequtils", "nvidia-persistenced"):
        assert f"{other}.service" in "".join(re.findall(r"^After=.*\n", unit, re.MULTILINE))
    assert "RemainAfterExit" not in unit
    assert "Wants=gpuctl-boot.timer" in unit


def test_the_timer_may_be_started_again_as_often_as_devices_appear() -> None:
    timer = configparser.ConfigParser()
    timer.read_string(kind.TIMER)
    assert timer["Unit"]["StartLimitIntervalSec"] == "0"
    assert timer["Timer"]["OnActiveSec"] == "20s"


def test_a_driver_that_binds_to_a_nic_or_gpu_restarts_the_timer() -> None:
    rule = kind.UDEV.splitlines()[-1]
    assert 'ACTION=="bind"' in rule
    assert "restart gpuctl-boot.timer" in rule
    assert all(part in rule for part in ('SUBSYSTEM=="pci"', 'ATTR{class}=="0x02*|0x03*"'))


def test_the_two_programs_share_no_file(tmp_path: Path) -> None:
    host = Host(tmp_path)
    assert not set(kind.files_of(host, "gpuctl-boot")) & set(kind.files_of(host, "gpuctl-exec"))


def test_an_old_python_is_passed_over_for_a_newer_one_beside_it(tmp_path: Path) -> None:
    link(tmp_path, "/usr/bin/python3", "/etc/alternatives/python3")
    link(tmp_path, "/etc/alternatives/python3", "/usr/bin/python3.6")
    for name in ("python3.6", "python3.9", "python3.11"):
        program(tmp_path, name)
    starter = kind.files_of(Host(tmp_path), "gpuctl-exec")["/usr/local/bin/gpuctl-exec"]
    assert starter.splitlines()[1] == "#!/usr/bin/python3.11 -IB"


def test_a_host_with_nothing_but_an_old_python_cannot_have_the_programs(tmp_path: Path) -> None:
    link(tmp_path, "/usr/bin/python3", "python3.6")
    program(tmp_path, "python3.6")
    with pytest.raises(Unsupported, match=r"no Python 3\.9 or later"):
        kind.files_of(Host(tmp_path), "gpuctl-boot")


def test_the_programs_import_nothing_that_is_not_installed_with_them() -> None:
    package = Path(boot.__file__).parent
    for modules in kind.MODULES.values():
        for name in modules:
            lines = re.findall(r"^\s*from \.(\w*) import (.+)", (package / f"{name}.py").read_text(), re.MULTILINE)
            # "from . import smi, clock_locks" imports modules.
            imported = [module for source, names in lines for module in ([source] if source else names.split(", "))]
            assert set(imported) <= set(modules), f"{name}.py imports {imported}"


def test_an_older_version_is_brought_up_to_date(tmp_path: Path) -> None:
    root = metal(tmp_path)
    tune(root, {"thp.enabled": "always"})
    put(root, "/usr/local/lib/gpuctl-boot/gpuhost/boot.py", "old\n")
    assert states(tune(root, {"thp.enabled": "always"}, check=True))["program.gpuctl-boot"] == "differs"
    assert states(tune(root, {"thp.enabled": "always"}))["program.gpuctl-boot"] == "ok"
