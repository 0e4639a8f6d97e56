"""Methods by which an editor reaches a pod, over what pod and machine show."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from gpuctl.core.errors import GpuctlError
from gpuctl.kube.edit_in import plan
from gpuctl.kube.edit_in.plan import ATTACHES, EditRequest, Local, Target

PROBED = """\
has nvim
has code-server
at /workspace
identity 0e1f
identity pid:[4026532]
identity mnt:[4026533]
socket local_address st
socket 0100007F:1F90 0A
socket 0100007F:0016 01
"""
TARGET = Target("lab/eu", "ml", "trainer-0", "ml", "registry/ml:1")
VIEW = plan.parse(PROBED)
CODE = EditRequest("code", "trainer-0")
ALONE = Local(["ms-python.python"], ssh_why="~/.ssh/config has no entry trainer-0")


def test_the_probe_names_programs_folder_identity_and_listening_ports() -> None:
    assert (set(VIEW.programs), VIEW.folder, set(VIEW.listening)) == ({"nvim", "code-server"}, "/workspace", {8080})
    assert plan.is_same(VIEW, "0e1f\npid:[4026532]\nmnt:[4026533]\n")
    assert not plan.is_same(VIEW, "0e1f\npid:[4026532]\nmnt:[4026599]\n")
    assert not plan.is_same(plan.parse("at /"), "")  # an unknown identity is not the same


@pytest.mark.parametrize(
    ("resolved", "leads"),
    [
        ("hostname trainer-0\nuser me\n", False),
        ("hostname trainer-0\nproxycommand none\n", False),
        ("hostname 10.0.0.9\n", True),
        ("hostname trainer-0\nproxycommand gpuctl eks stream\n", True),
    ],
)
def test_an_entry_of_ssh_is_one_that_leads_elsewhere(resolved: str, leads: bool) -> None:
    assert plan.leads_away("trainer-0", resolved) is leads


def test_ssh_comes_first_then_the_attach_then_a_forward() -> None:
    attaches = replace(ALONE, extensions=[ATTACHES["code"]])
    by_ssh = plan.choose(CODE, TARGET, VIEW, replace(attaches, ssh_host="trainer-0"))
    assert (by_ssh.method, by_ssh.argv) == ("ssh", ("code", "--remote", "ssh-remote+trainer-0", "/workspace"))
    attach = plan.choose(replace(CODE, path="/my data"), TARGET, VIEW, attaches)
    assert attach.argv[:2] == ("code", "--folder-uri")
    names = "context=lab%2Feu+podname=trainer-0+namespace=ml+name=ml+image=registry%2Fml%3A1"
    assert attach.argv[2] == f"vscode-remote://k8s-container+{names}/my%20data"
    assert attach.why_not == ("by ssh: ~/.ssh/config has no entry trainer-0",)
    forward = plan.choose(CODE, TARGET, VIEW, ALONE)
    assert (forward.method, forward.port, len(forward.why_not)) == ("forward", 8080, 2)


def test_cursor_gets_its_form_of_the_address() -> None:
    chosen = plan.choose(EditRequest("cursor", "trainer-0"), TARGET, VIEW, Local([ATTACHES["cursor"]], ssh_why="none"))
    authority = chosen.argv[2].removeprefix("vscode-remote://k8s-container+").partition("/")[0]
    names = {"context": "lab/eu", "podname": "trainer-0", "namespace": "ml", "name": "ml"}
    assert json.loads(bytes.fromhex(authority)) == {"settingType": "pod", **names}


def test_an_editor_that_is_not_installed_still_has_the_forward() -> None:
    chosen = plan.choose(CODE, TARGET, VIEW, Local(None))
    assert (chosen.method, chosen.why_not) == ("forward", ("`code` is not installed on this machine",))


def test_without_any_method_the_error_has_all_reasons() -> None:
    with pytest.raises(GpuctlError) as error:
        plan.choose(replace(CODE, port=9000), TARGET, VIEW, ALONE)
    assert "no entry trainer-0; attach: VS Code has no extension" in error.value.wrong
    assert error.value.wrong.endswith("forward: code-server does not listen on port 9000")
    assert error.value.hint == f"code --install-extension {ATTACHES['code']}"


@pytest.mark.parametrize("folder", ["--install-extension=evil.ext", "-x", "data", "/a\x1b]0;x\x07", "/a\rb"])
def test_a_folder_that_the_container_names_is_never_an_option_nor_a_control_sequence(folder: str) -> None:
    view = plan.parse(PROBED.replace("at /workspace", f"at {folder}"))
    by_ssh = plan.choose(CODE, TARGET, view, Local([], ssh_host="trainer-0"))
    assert by_ssh.argv == ("code", "--remote", "ssh-remote+trainer-0", "/")
    with pytest.raises(GpuctlError, match="no absolute path"):
        plan.choose(replace(CODE, path=folder), TARGET, view, ALONE)


def test_lines_of_the_container_in_another_form_are_left_out() -> None:
    view = plan.parse("at /\nidentity \x1b[2Jx\nidentity 0e1f\nsocket 0:zz 0A\nsocket 0 0A\n")
    assert (view.identity, set(view.listening)) == (("0e1f",), set())


def test_a_listener_without_code_server_is_not_called_one() -> None:
    view = plan.parse(PROBED.replace("has code-server\n", ""))
    assert "where something listens" in plan.choose(CODE, TARGET, view, ALONE).text


def test_neovim_runs_in_the_container_or_not_at_all() -> None:
    nvim = EditRequest("nvim", "trainer-0", path="/workspace/train.py")
    chosen = plan.choose(nvim, TARGET, VIEW, Local(None))
    assert chosen.argv[-2:] == ("nvim", "/workspace/train.py")
    with pytest.raises(GpuctlError, match="has no nvim"):
        plan.choose(nvim, TARGET, plan.parse("at /"), Local(None))
