"""Which inventory a name means, and how its hosts are reached."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from gpuctl.core.errors import InvalidInput
from gpuctl.hosts.inventory import THIS_PYTHON, find, target


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """An empty working folder and an empty config folder."""
    here, config = tmp_path / "here", tmp_path / "config"
    (here / "inventories").mkdir(parents=True)
    (config / "inventories").mkdir(parents=True)
    monkeypatch.chdir(here)
    monkeypatch.setenv("GPUCTL_CONFIG_DIR", str(config))
    return here, config


def test_a_name_is_found_in_the_working_folder_and_in_the_users_own(places: tuple[Path, Path]) -> None:
    here, config = places
    (here / "inventories/lab.yml").write_text("all: {}\n")
    (config / "inventories/prod").mkdir()
    assert find("lab") == here / "inventories/lab.yml"
    assert find("prod") == config / "inventories/prod"


def test_a_name_in_two_places_is_refused_with_both(places: tuple[Path, Path]) -> None:
    for place in places:
        (place / "inventories/prod.yml").write_text("all: {}\n")
    with pytest.raises(InvalidInput) as refused:
        find("prod")
    assert all(str(place / "inventories/prod.yml") in refused.value.wrong for place in places)
    assert refused.value.exit_code == 2


def test_localhost_is_always_the_embedded_one(places: tuple[Path, Path]) -> None:
    (places[0] / "inventories/localhost.yml").write_text("all: {hosts: {elsewhere: {}}}\n")
    assert (find("localhost") / "hosts.yml").is_file()
    assert places[0] not in find("localhost").parents


def test_an_unknown_name_is_refused_with_the_known_names(places: tuple[Path, Path]) -> None:
    (places[1] / "inventories/prod.yml").write_text("all: {}\n")
    with pytest.raises(InvalidInput) as refused:
        find("prd")
    assert "prod" in refused.value.hint


def test_a_path_to_a_missing_file_is_refused(places: tuple[Path, Path]) -> None:
    with pytest.raises(InvalidInput, match="no such file"):
        find("./missing.yml")


def test_connection_variables_become_a_target() -> None:
    found = target(
        "gpu-1",
        {
            "ansible_host": "10.0.0.1",
            "ansible_port": 2222,
            "ansible_user": "ubuntu",
            "ansible_ssh_private_key_file": "~/.ssh/fleet",
            "ansible_ssh_common_args": "-o ProxyJump=bastion",
            "ansible_ssh_extra_args": "-o 'SendEnv=A B'",
            "ansible_become": "yes",
            "ansible_python_interpreter": "/usr/bin/python3.11",
            "host_profile_name": "inference",
        },
    )
    assert (found.address, found.port, found.user, found.key) == ("10.0.0.1", 2222, "ubuntu", "~/.ssh/fleet")
    assert found.ssh_args == ("-o", "ProxyJump=bastion", "-o", "SendEnv=A B")
    assert (found.become, found.become_user, found.python) == (True, "root", "/usr/bin/python3.11")
    assert (found.profile, found.needs_ansible) == ("inference", "")


def test_localhost_and_local_connections_need_no_ssh() -> None:
    assert target("localhost", {}).local
    assert (
        target("here", {"ansible_connection": "local", "ansible_python_interpreter": THIS_PYTHON}).python
        == sys.executable
    )
    assert not target("localhost", {"ansible_connection": "ssh"}).local


@pytest.mark.parametrize(
    ("variables", "why"),
    [
        ({"ansible_become_password": "x"}, "ansible_become_password is set"),
        ({"ansible_password": {"__ansible_vault": "x"}}, "ansible_password is set"),
        ({"ansible_connection": "community.docker.docker"}, "ansible_connection is community.docker.docker"),
        ({"ansible_become_method": "su"}, "ansible_become_method is su"),
        ({"ansible_host": "{{ lookup('env', 'X') }}"}, "ansible_host is computed"),
    ],
)
def test_a_host_that_needs_an_ansible_feature_is_left_to_ansible(variables: dict[str, object], why: str) -> None:
    assert target("gpu-1", variables).needs_ansible == why


def test_secrets_never_reach_a_target() -> None:
    assert "hunter2" not in repr(target("gpu-1", {"ansible_become_password": "hunter2", "ansible_user": "u"}))


@pytest.mark.parametrize(
    "elsewhere", [{"ansible_port": 2222}, {"ansible_host": "10.0.0.5"}, {"ansible_user": "vagrant"}]
)
def test_a_localhost_with_an_address_of_its_own_is_another_machine(elsewhere: dict[str, object]) -> None:
    assert target("localhost", {}).local
    assert not target("localhost", elsewhere).local


@pytest.mark.parametrize("name", ["ansible_become_password_file", "ansible_become_exe", "ansible_ssh_executable"])
def test_a_variable_that_only_ansible_implements_is_left_to_ansible(name: str) -> None:
    assert target("gpu-1", {name: "/opt/x"}).needs_ansible == f"{name} is set"


@pytest.mark.parametrize("wrong", [{"ansible_port": "22a"}, {"ansible_ssh_common_args": "-o 'unbalanced"}])
def test_a_connection_variable_that_makes_no_sense_is_refused_with_the_host(wrong: dict[str, object]) -> None:
    with pytest.raises(InvalidInput, match="cannot reach gpu-1 as the inventory says"):
        target("gpu-1", wrong)


@pytest.mark.parametrize(
    ("name", "variables", "wrong"),
    [
        ("a\x1b]0;title\x07b", {}, "its name has control characters"),
        ("a\nb", {}, "its name has control characters"),
        ("a", {"ansible_host": "10.0.0.1\x1b[2J"}, "ansible_host has control characters"),
        ("a", {"ansible_connection": "\x9d0;title"}, "ansible_connection has control characters"),
    ],
)
def test_a_host_with_escape_sequences_is_refused_and_spelt_out(
    name: str, variables: dict[str, object], wrong: str
) -> None:
    with pytest.raises(InvalidInput, match=wrong) as refused:
        target(name, variables)
    assert "\x1b" not in str(refused.value)


def test_a_login_as_the_become_user_needs_no_sudo() -> None:
    become = {"ansible_become": True}
    assert target("gpu-1", become).become
    assert not target("gpu-1", {**become, "ansible_user": "root"}).become


@pytest.mark.parametrize("name", ["~nosuch/hosts", "/" + "x" * 300, "x" * 300, ""])
def test_a_strange_name_is_no_inventory(places: tuple[Path, Path], name: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        find(name)
    assert refused.value.exit_code == 2


def test_only_names_that_can_be_used_are_offered(places: tuple[Path, Path]) -> None:
    (places[1] / "inventories/prod.json").write_text("{}")
    (places[1] / "inventories/lab.yml").write_text("all: {}\n")
    with pytest.raises(InvalidInput) as refused:
        find("prod")
    assert "lab" in refused.value.hint
    assert "prod" not in refused.value.hint
