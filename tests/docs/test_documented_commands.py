"""Every gpuctl command that a page shows exists, with the options it is shown with; every link leads somewhere."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest

from gpuctl.cli.app import app
from gpuctl.cli.shared.click_groups import GroupWithDefault

ROOT = Path(__file__).parents[2]
GLOBS = (
    "README.md",
    "docs/*.md",
    "roles/*/README.md",
    "bench/*.md",
    "examples/training/*.md",
    "examples/training/*.py",
    "examples/eks/pod/*.md",
)
PAGES = sorted(page for pattern in GLOBS for page in ROOT.glob(pattern))


def shown() -> list[tuple[str, str]]:
    """(page, command) for every `gpuctl …` in code blocks and in running text."""
    shown_commands = {
        (str(page.relative_to(ROOT)), text.split("#")[0].strip())
        for page in PAGES
        for text in re.findall(r"(?:^|^    |`|^\$ )(gpuctl [^`\n]+)", page.read_text(), re.MULTILINE)
    }
    return sorted(shown_commands)


def alternatives(word: str) -> list[str]:
    """`list|show` stands for two commands."""
    return word.replace("\\|", "|").split("|")


@pytest.mark.parametrize(("page", "text"), shown())
def test_every_command_and_option_exists(page: str, text: str) -> None:
    command: click.Command = app
    for word in shlex.split(text)[1:]:
        if word == "--" or word.endswith(".py"):  # what follows are the words of another program
            break
        if isinstance(command, GroupWithDefault) and word not in command.list_commands(click.Context(command)):
            command = command.commands[command.default]
        if word.startswith("-"):
            assert word in {
                name for parameter in command.get_params(click.Context(command)) for name in parameter.opts
            }, (page, word)
        elif isinstance(command, click.Group):
            context = click.Context(command)
            assert set(alternatives(word)) <= set(command.list_commands(context)), (page, word)
            member = command.get_command(context, alternatives(word)[0])
            assert member is not None
            command = member


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_to_a_file(page: Path) -> None:
    links = re.findall(r"\]\((?!https?://)([^)#]+)", page.read_text())
    assert [link for link in links if not (page.parent / link).exists()] == []
