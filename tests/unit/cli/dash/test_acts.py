"""Commands that are run from an open line."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from gpuctl.cli.app import app
from gpuctl.cli.dash import acts
from gpuctl.cli.dash.command import dash
from gpuctl.cli.dash.model import Program
from gpuctl.cli.dash.request import DashRequest
from gpuctl.cli.shared.options import build
from gpuctl.core.errors import InvalidInput
from gpuctl.core.settings import Settings


def program(command: str, *words: str) -> Program:
    """Program of a command, of a screen that was started with these options."""
    with dash.make_context("dash", list(words)) as context:
        return acts.program(command, Settings(), build(DashRequest, context.params))


@pytest.mark.parametrize(
    "command",
    [
        "gpuctl audit --inventory prod --limit gpu-1",
        "gpuctl kube pod logs a --context prod-eu",
        "gpuctl nodes --inventory prod",
        "gpuctl rollback --inventory prod --limit gpu-1 --check --diff",
    ],
)
def test_a_command_that_only_reads_asks_nothing(command: str) -> None:
    assert program(command).question == ""


@pytest.mark.parametrize(
    "command",
    [
        "gpuctl nodes kill --inventory {} gpu-1 pid:7",
        "gpuctl rollback --inventory={} --limit gpu-1",
        "gpuctl kube pod shell a --namespace train --context {}",
    ],
)
def test_a_command_that_may_change_something_asks_and_is_refused_in_production(command: str) -> None:
    dev, prod = command.format("dev"), command.format("prod-eu")
    assert program(dev).question.endswith(f"Run `{dev}`?")
    with pytest.raises(InvalidInput, match="prod-eu is production"):
        program(prod)
    assert program(prod, "--allow-changes").question.endswith(f"Run `{prod}`?")


@pytest.mark.parametrize("name", ["/inv/prd-eu.yml", "eu-prd/hosts.yml", "./eu-prd.aws_ec2.yml", "~/inv/.eu-prd.yml"])
@pytest.mark.parametrize("option", ["-i {}", "-i{}", "--inventory {}", "--inventory={}"])
def test_a_path_of_production_is_refused_under_each_form_of_the_option(name: str, option: str) -> None:
    with pytest.raises(InvalidInput, match="is production"):
        program(f"gpuctl rollback {option.format(name)} --limit gpu-1")


def test_an_inventory_that_leads_to_production_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "eu-prd.yml").write_text("all:\n")
    (tmp_path / "inventories").mkdir()
    (tmp_path / "inventories/eu.yml").symlink_to(tmp_path / "eu-prd.yml")
    with pytest.raises(InvalidInput, match=r"eu \(.*/eu-prd.yml\) is production"):
        program("gpuctl rollback -i eu")


@pytest.mark.parametrize("words", [("--inventory", "prod"), ("-i", "eu-prd/hosts.yml"), ("--context", "prod-eu")])
def test_a_screen_of_production_changes_nothing_where_the_command_names_no_target(words: tuple[str, ...]) -> None:
    command = "gpuctl reservations cancel 7"
    with pytest.raises(InvalidInput, match="is production"):
        program(command, *words)
    assert program(command, "--inventory", "dev").question == f"Run `{command}`?"
    assert program(command, *words, "--allow-changes").question == f"Run `{command}`?"


@pytest.mark.parametrize(
    "command",
    [
        "gpuctl kube logs-ai a --send",
        "gpuctl kube pod exec a -- prog --check",
        "gpuctl nodes kill --inventory dev gpu-1 pid:7 --reason --check",
        "gpuctl rollback --limit --check",
        "gpuctl reservations cancel 7 --check",
    ],
)
def test_an_option_that_another_command_has_does_not_make_one_read(command: str) -> None:
    assert program(command).question.endswith(f"Run `{command}`?")


def test_commands_with_a_check_have_one() -> None:
    for names in acts.CHECKED:
        command: click.Command | None = app
        for name in names:
            assert isinstance(command, click.Group)
            command = command.get_command(click.Context(command), name)
        assert command is not None
        assert acts.CHECK in [option for one in command.params for option in one.opts]


def test_a_rollback_names_what_it_takes_back_and_the_number_of_hosts() -> None:
    first, *_ = program("gpuctl rollback --inventory dev --limit gpu-1,gpu-2").question.splitlines()
    assert first == "It restores the values from before gpuctl on 2 hosts: changes of other runs there are lost, too."
    assert "on all hosts" in program("gpuctl rollback --inventory dev").question
