"""Command groups whose help shows whole sentences."""

from __future__ import annotations

import click


class Group(click.Group):
    """Lists each command with the whole first sentence of its help; click cuts it at the end of the line."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        commands = ((name, self.get_command(ctx, name)) for name in self.list_commands(ctx))
        rows = [
            (name, command.get_short_help_str(limit=1000))
            for name, command in commands
            if command and not command.hidden
        ]
        with formatter.section("Commands"):
            formatter.write_dl(rows)
