"""Commands whose --help lists options under headings, such as those for Slurm or for pods."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from gpuctl.cli.shared.options import Command

Decorator = Callable[[Command], Command]


class SectionOption(click.Option):
    """An option that --help lists under a heading."""

    def __init__(self, *args: Any, section: str, **more: Any) -> None:
        super().__init__(*args, **more)
        self.section = section


class Sectioned(click.Command):
    """Lists options without a heading first, then those of each heading, in the order of definition."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        under: dict[str, list[tuple[str, str]]] = {}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if record is not None and not isinstance(param, click.Argument):
                under.setdefault(getattr(param, "section", "Options"), []).append(record)
        for heading, records in under.items():
            with formatter.section(heading):
                formatter.write_dl(records)


def section(heading: str) -> Callable[..., Decorator]:
    """`click.option` for options under a heading: `in_pods = section("In pods")`."""

    def option(*names: str, **more: Any) -> Decorator:
        return click.option(*names, cls=SectionOption, section=heading, **more)

    return option
