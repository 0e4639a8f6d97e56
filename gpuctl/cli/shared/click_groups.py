"""Command groups: commands are imported when they are needed, and help shows whole sentences."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

import click


class Group(click.Group):
    """Lists each command with the whole first sentence of its help; click cuts it at the end of the line.

    `members`: name -> "module:attribute" of commands that are imported when one of them runs, or all are listed.
    `gpuctl --help` lists groups only, and has no time for the commands inside them.
    """

    def __init__(self, *args: Any, members: Mapping[str, str] | None = None, **options: Any) -> None:
        self.members = dict(members or {})
        super().__init__(*args, **options)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*self.members, *self.commands})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in self.members and cmd_name not in self.commands:
            module, _, attribute = self.members[cmd_name].partition(":")
            self.add_command(getattr(importlib.import_module(module), attribute), cmd_name)
        return super().get_command(ctx, cmd_name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        commands = ((name, self.get_command(ctx, name)) for name in self.list_commands(ctx))
        rows = [
            (name, command.get_short_help_str(limit=1000))
            for name, command in commands
            if command and not command.hidden
        ]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


class GroupWithDefault(Group):
    """A group that runs its command `default`, unless the first argument names another of its commands.

    Its help shows the arguments and options of the default command, which is hidden.
    """

    def __init__(self, *args: Any, default: str, **options: Any) -> None:
        self.default = default
        super().__init__(*args, **options)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        named = args[:1] and (args[0] in self.list_commands(ctx) or args[0] in ctx.help_option_names)
        return super().parse_args(ctx, args if named else [self.default, *args])

    def format_usage(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        pieces = self.commands[self.default].collect_usage_pieces(ctx)
        formatter.write_usage(ctx.command_path, " ".join(pieces))

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        click.Command.format_options(self.commands[self.default], ctx, formatter)
        self.format_commands(ctx, formatter)
