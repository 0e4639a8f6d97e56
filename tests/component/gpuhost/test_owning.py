"""Ownership of settings: undo knows every change, however the run ended."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost import bounded_output
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.host import Host

from tests.component.gpuhost.test_crash import Killed
from tests.rig.trees.host import TreeHost, content, program, put, small_server, states, tune, undo, units

SWAPPINESS = "/proc/sys/vm/swappiness"
SERVICE = "unit.fabric.service"


class Granting(TreeHost):
    """A kernel that silently sets another value, as it does for huge pages without enough memory."""

    def __init__(self, root: Path, granted: dict[str, str]) -> None:
        super().__init__(root)
        self.granted = granted

    def write(self, path: str, text: str) -> None:
        super().write(path, self.granted.get(text, text))


def busy_server(tmp_path: Path, **state: str) -> Path:
    root = small_server(tmp_path)
    units(root, fabric__service=state)
    put(root, "/proc/4711/comm", "slurmstepd\n")
    return root


def test_a_file_whose_refresh_fails_is_put_back_all_the_same(tmp_path: Path) -> None:
    root = small_server(tmp_path)
    before = content(root)
    systemctl = (root / "usr/bin/systemctl").read_text()
    failing = 'case $1 in daemon-reload) echo no space left >&2; exit 1;; *) exec "$0-real" "$@";; esac'
    program(root, "systemctl-real", systemctl)
    program(root, "systemctl", f"#!/bin/sh\n{failing}\n")
    path = "/etc/systemd/system/fabric.service.d/limits.conf"
    assert states(tune(root, {f"file.{path}": "0644 0:0\n[Service]\n"})) == {f"file.{path}": "failed"}
    assert (root / path[1:]).exists()
    program(root, "systemctl", systemctl)
    (root / "usr/bin/systemctl-real").unlink()
    undo(root)
    assert content(root) == before


def test_a_busy_host_keeps_the_service_that_undo_would_stop(tmp_path: Path) -> None:
    root = busy_server(tmp_path, boot="enabled", now="inactive")
    tune(root, {SERVICE: "started"})
    for answer in (undo(root), tune(root, {})):
        assert states(answer) == {SERVICE: "refused"}
        assert "stops fabric.service" in answer["knobs"][0]["reason"]
    assert states(undo(root, allow_busy=True)) == {SERVICE: "ok"}


def test_an_undo_that_the_kernel_does_not_grant_fails_and_can_be_tried_again(tmp_path: Path) -> None:
    root = small_server(tmp_path)
    tune(root, {"sysctl.vm.swappiness": "0"})
    (knob,) = undo(root, host=Granting(root, {"60": "55"}))["knobs"]
    assert (knob["state"], knob["reason"]) == ("failed", "asked for 60, the host holds 55")
    assert states(undo(root)) == {"sysctl.vm.swappiness": "ok"}
    assert (root / SWAPPINESS[1:]).read_text() == "60\n"


def test_a_unit_that_another_knob_has_now_is_not_given_back(tmp_path: Path) -> None:
    root = small_server(tmp_path)
    before = {"boot": "enabled", "now": "active"}
    units(root, irqbalance__service=before)
    tune(root, {"irq.balance": "off"})
    answer = tune(root, {"unit.irqbalance.service": "disabled stopped"})
    assert states(answer)["unit.irqbalance.service"] == "ok"
    assert '"boot": "disabled", "now": "inactive"' in (root / "run/standin-units.json").read_text()
    undo(root)
    assert '"boot": "enabled", "now": "active"' in (root / "run/standin-units.json").read_text()


def test_a_knob_that_another_one_of_the_run_reverts_has_failed(tmp_path: Path) -> None:
    class Linked(TreeHost):
        """Two files with one value, as the kernel has some."""

        def write(self, path: str, text: str) -> None:
            super().write(path, text)
            super().write(path.replace("max_map_count", "swappiness"), text)

    root = small_server(tmp_path)
    answer = tune(root, {"sysctl.vm.swappiness": "60", "sysctl.vm.max_map_count": "70"}, host=Linked(root))
    answer = tune(root, {"sysctl.vm.swappiness": "70", "sysctl.vm.max_map_count": "80"}, host=Linked(root))
    assert states(answer)["sysctl.vm.swappiness"] == "failed"


@pytest.mark.parametrize("boundary", range(30))
def test_a_second_run_that_was_killed_leaves_nothing_in_doubt(tmp_path: Path, boundary: int) -> None:
    root = small_server(tmp_path)
    before = content(root)
    tune(root, {"sysctl.vm.swappiness": "10", "thp.enabled": "never"})
    _killed(root, {"sysctl.vm.swappiness": "0", "thp.enabled": "always"}, boundary)
    assert set(states(undo(root)).values()) == {"ok"}
    after = content(root)
    after["run/standin-units.json"] = before["run/standin-units.json"]
    assert after == before


def _killed(root: Path, knobs: dict[str, str], boundary: int) -> None:
    import os

    child = os.fork()
    if child == 0:
        tune(root, knobs, host=Killed(root, boundary))
        os._exit(0)
    os.waitpid(child, 0)


def test_the_boot_unit_stays_while_another_scope_needs_it(tmp_path: Path) -> None:
    root = small_server(tmp_path)
    tune(root, {"thp.enabled": "always"})
    put(root, "/sys/kernel/mm/transparent_hugepage/defrag", "always [madvise] never\n")
    tune(root, {"thp.defrag": "never"}, scope="site")
    tune(root, {})
    assert (root / "usr/local/sbin/gpuctl-boot").exists()
    undo(root, scope="profile")
    assert (root / "usr/local/sbin/gpuctl-boot").exists()
    undo(root, scope="site")
    undo(root)
    assert not (root / "usr/local/sbin/gpuctl-boot").exists()


def test_a_program_without_utf_8_output_or_without_end_does_no_harm(tmp_path: Path) -> None:
    host = Host(small_server(tmp_path))
    program(tmp_path, "noisy", "#!/bin/sh\nprintf 'caf\\351 %s\\n' \"$NEEDRESTART_SUSPEND\"\n")
    assert host.run("noisy").out == "caf\ufffd 1\n"
    program(tmp_path, "deaf", "#!/bin/sh\ntrap '' TERM\nwhile :; do :; done\n")
    assert host.run("deaf", limit=0.2).code == 124


def test_a_program_that_prints_for_ever_is_stopped_and_none_of_its_output_is_taken_for_the_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounded_output, "MOST_BYTES", 1 << 20)
    host = Host(small_server(tmp_path))
    program(tmp_path, "yes", "#!/bin/sh\nexec /usr/bin/yes\n")
    assert host.run("yes", limit=30) == (125, "", "yes printed more than 1 MiB and was stopped")
    program(tmp_path, "errors", "#!/bin/sh\nexec /usr/bin/yes >&2\n")
    assert host.run("errors", limit=30).code == 125
    program(tmp_path, "much", "#!/bin/sh\n/usr/bin/yes | /usr/bin/head -c 1100000\n")
    assert host.run("much", limit=30).code == 125
    program(tmp_path, "enough", "#!/bin/sh\n/usr/bin/yes | /usr/bin/head -c 1000000\n")
    assert len(host.run("enough", limit=30).out) == 1000000


def test_a_program_that_changes_the_host_is_not_stopped_for_what_it_prints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounded_output, "MOST_BYTES", 1 << 16)
    host = Host(small_server(tmp_path))
    program(tmp_path, "install", "#!/bin/sh\n/usr/bin/yes | /usr/bin/head -c 300000\nexit 3\n")
    assert host.run("install", changes=True) == (3, "", "install printed more than 0 MiB, which was dropped")


def test_a_program_gets_all_of_its_input_while_it_prints(tmp_path: Path) -> None:
    host = Host(small_server(tmp_path))
    program(tmp_path, "cat", "#!/bin/sh\nexec /bin/cat\n")
    text = "line\r\n" * 200_000
    assert host.run("cat", stdin=text).out == text.replace("\r\n", "\n")
    program(tmp_path, "deaf", "#!/bin/sh\nexit 0\n")
    assert host.run("deaf", stdin=text).ok


def test_a_process_that_ends_while_it_is_read_is_missing_and_errors_name_their_file(tmp_path: Path) -> None:
    host = Host(tmp_path)
    put(tmp_path, "/proc/1/comm", "x")

    class Gone(Host):
        def read(self, path: str) -> str:
            raise ProcessLookupError(errno.ESRCH, "No such process")

    assert Gone(tmp_path).read_or_none("/proc/1/comm") is None
    with pytest.raises(IsADirectoryError) as raised:
        host.read("/proc/1")
    assert raised.value.filename == "/proc/1"


def test_a_malformed_number_affects_only_its_knob(tmp_path: Path) -> None:
    root = small_server(tmp_path)
    put(root, "/var/lib/gpuctl/records/000001.json", "{")
    assert "000001.json cannot be used" in tune(root, {"sysctl.vm.swappiness": "0"})["error"]["wrong"]
