"""What the peers are given: the same settings, every one of them."""

from __future__ import annotations

import ast

import yaml

from bench import peers
from bench.settings import settings


def test_the_settings_are_forty_or_more_and_each_can_be_read() -> None:
    wanted = settings()
    assert len(wanted) >= 40
    assert all(setting.path.startswith("/") for setting in wanted)


def test_the_playbook_has_a_task_for_each_setting_and_keeps_kernel_files_over_a_reboot() -> None:
    (play,) = yaml.safe_load(peers.playbook(settings()))
    assert [task["name"] for task in play["tasks"]] == [
        *(f"{s.kind} {s.key}" for s in settings()),
        "over a reboot",
    ]


def test_the_deploy_has_an_operation_for_each_setting() -> None:
    operations = {"server.sysctl", "server.shell", "files.put", "systemd.service"}
    calls = [
        ast.unparse(node.func) for node in ast.walk(ast.parse(peers.deploy(settings()))) if isinstance(node, ast.Call)
    ]
    assert len([call for call in calls if call in operations]) == len(settings()) + 1


def test_the_reader_reads_every_path() -> None:
    text = peers.reader(settings(), "/etc/kept")
    assert all(repr(s.path) in text for s in settings())
    ast.parse(text)
