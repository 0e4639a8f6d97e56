"""Options that several commands share."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar, get_args, get_type_hints

import click
from click.core import ParameterSource

from gpuctl.cli.shared import completion
from gpuctl.cli.shared.output import Output
from gpuctl.core.errors import InvalidInput

Command = Callable[..., Any]
Request = TypeVar("Request")


class Share(click.ParamType[str]):
    """A percentage, such as 20%; with `counts` also a plain number of hosts."""

    def __init__(self, counts: bool = False) -> None:
        self.counts = counts
        self.name = "N|P%" if counts else "P%"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        text = "0%" if value == "0" and not self.counts else str(value)  # no share has another meaning
        match = re.fullmatch(r"(\d+)(%?)", text)
        if match is None or not (match[2] or self.counts):
            self.fail(
                f"{value!r} is not {'a number or ' if self.counts else ''}a percentage such as 20%",
                param,
                ctx,
            )
        if (match[2] and int(match[1]) > 100) or (self.counts and int(match[1]) < 1):
            self.fail(f"{value!r} is out of range", param, ctx)
        return text


class Finite(click.FloatRange):
    """A number within a range, and neither nan nor infinite."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number: float = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a finite number", param, ctx)
        return number


UNITS = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400}


class Duration(click.ParamType[float]):
    """A time such as 90s, 30m, 1h or 2d, in seconds."""

    name = "TIME"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        match = re.fullmatch(r"(\d{1,6}(?:\.\d+)?)(s|m|min|h|d)", str(value))
        if match is None or not float(match[1]):
            self.fail(f"{value!r} is not a time such as 90s, 30m, 1h or 2d", param, ctx)
        return float(match[1]) * UNITS[match[2]]


def not_empty(ctx: click.Context, param: click.Parameter, value: str) -> str:
    """Refuse an empty value: an empty variable of a script must not mean all hosts."""
    from_command_line = param.name and ctx.get_parameter_source(param.name) is ParameterSource.COMMANDLINE
    if from_command_line and not value.strip(" ,"):
        raise click.BadParameter("it is empty; set a value, or omit the option", ctx, param)
    return value


def confirm(question: str, yes: bool) -> None:
    """Ask for confirmation; without a terminal, require --yes."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise InvalidInput("continue", "this needs confirmation, and there is no terminal", "add --yes")
    click.confirm(question, abort=True, err=True)


def together(*options: Callable[[Command], Command]) -> Callable[[Command], Command]:
    """Combine options into one decorator; --help lists them in this order."""

    def decorate(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


def as_request(request: type[Any], *declared: Callable[[Command], Command]) -> Callable[[Command], Command]:
    """Declare options; the command receives their values as one argument, `request`, an instance of this class.

    Every field of the class is an option of the same name, or a nested request with such fields.
    """

    def decorate(command: Command) -> Command:
        @wraps(command)
        def call(**values: Any) -> Any:
            names = option_names(request)
            rest = {name: value for name, value in values.items() if name not in names}
            return command(request=build(request, values), **rest)

        call.__dict__["request"] = request
        return together(*declared)(call)

    return decorate


def build(request: type[Request], values: Mapping[str, Any]) -> Request:
    """Build a request from the values of its options; a field without a value keeps its default."""
    types = get_type_hints(request)
    nested = {name: build(kind, values) for name, kind in types.items() if _is_request(kind)}
    return request(**{**{name: values[name] for name in types if name in values}, **nested})


def option_names(request: type[Any]) -> dict[str, bool]:
    """Options of a request and its nested requests, each with True if it has no default."""
    types = get_type_hints(request)
    names = dict[str, bool]()
    for field in fields(request):
        if _is_request(types[field.name]):
            names |= option_names(types[field.name])
        else:
            names[field.name] = field.default is field.default_factory  # both are MISSING
    return names


def _is_request(kind: Any) -> bool:
    return is_dataclass(kind)


inventory = click.option(
    "--inventory", "-i", metavar="NAME|PATH", default=None, help="Inventory of the hosts.  [default: this machine]"
)
limit = click.option(
    "--limit",
    "-l",
    metavar="PATTERN",
    default="",
    callback=not_empty,
    help="Only hosts that match, like Ansible's --limit.",
)
profile = click.option(
    "--profile",
    "-p",
    metavar="NAME|PATH",
    default="",
    help="Profile of the settings.  [default: host_profile_name in the inventory, else training]",
)
check = click.option("--check", is_flag=True, help="Change nothing; report what would be changed.")
diff = click.option("--diff", is_flag=True, help="Show each setting before and after, and the reason for it.")


def visit(of: str, timeout_s: float = 120) -> Callable[[Command], Command]:
    """Options of a command that asks hosts and changes none; `of`: what it calls them."""
    return together(
        click.option(
            "--forks",
            type=click.IntRange(1),
            default=64,
            show_default=True,
            help=f"{of.capitalize()}s queried in parallel.",
        ),
        click.option(
            "--timeout",
            type=Finite(1, 86400),
            default=timeout_s,
            show_default=True,
            help=f"Time limit per {of}, in seconds.",
        ),
    )


strict = click.option("--strict", is_flag=True, help="Count settings that a host does not support as problems.")
allow_busy = click.option("--allow-busy", is_flag=True, help="Also change settings that disturb running jobs.")
context = click.option(
    "--context",
    metavar="NAME",
    default="",
    help="Kubernetes context.  [default: the current one]",
    shell_complete=completion.contexts,
)


local_port = click.option(
    "--local", type=click.IntRange(1, 65535), help="The local port.  [default: 8888, or the next free one]"
)
public_keys = together(
    click.option(
        "--key",
        "key_files",
        metavar="FILE",
        multiple=True,
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help="File with public keys that may log in; may be repeated.",
    ),
    click.option(
        "--github",
        metavar="USER",
        multiple=True,
        callback=lambda ctx, param, value: [not_empty(ctx, param, one) for one in value],
        help="GitHub user whose public keys may log in; may be repeated.",
    ),
)


def other_context(text: str) -> Callable[[Command], Command]:
    """--context of commands that use Kubernetes only if it is given; `text` is its help."""
    return click.option(
        "--context", metavar="NAME", default="", callback=not_empty, shell_complete=completion.contexts, help=text
    )


def deep(text: str) -> Callable[[Command], Command]:
    """--deep: the level of DCGM's diagnosis; `text` is its help."""
    return click.option("--deep", type=click.IntRange(1, 3), metavar="1|2|3", help=text)


def nccl(text: str) -> Callable[[Command], Command]:
    """--nccl with --search-path: a test of NCCL on each host; `text` is the help of --nccl."""
    return together(
        click.option("--nccl", is_flag=True, help=text),
        click.option(
            "--search-path",
            metavar="DIR",
            multiple=True,
            help="Folder with nccl-tests or mpirun on the hosts, for --nccl; repeatable.",
        ),
    )


def node_probe(text: str) -> Callable[[Command], Command]:
    """--probe of commands that can ask Kubernetes nodes by pods, with image and namespace; `text` is its help."""
    return together(
        click.option("--probe", is_flag=True, help=text),
        click.option(
            "--probe-image",
            metavar="IMAGE",
            default="busybox:stable",
            show_default=True,
            callback=not_empty,
            help="Image of these pods; it needs sh, sleep and nsenter.",
        ),
        click.option(
            "--namespace", metavar="NAME", default="", help="Namespace of these pods.  [default: the context's]"
        ),
    )


aws_profile = click.option(
    "--aws-profile", metavar="NAME", default="", callback=not_empty, help="Profile of the AWS configuration."
)
yes = click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation (asked only for this machine).")
sure = click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
probe_every = click.option(
    "--probe-every", type=Finite(0.5), default=5.0, show_default=True, help="Seconds between two probes."
)
output = click.option(
    "--output",
    "-o",
    "form",
    type=click.Choice(get_args(Output)),
    default="table",
    show_default=True,
    help="Output format.",
)
carrier = together(
    click.option(
        "--forks",
        type=click.IntRange(1),
        default=64,
        show_default=True,
        help="Hosts queried or changed in parallel.",
    ),
    click.option(
        "--timeout",
        type=Finite(1, 86400),
        default=120,
        show_default=True,
        help="Time limit per host, in seconds; ten times as long while it is changed.",
    ),
    click.option(
        "--via",
        type=click.Choice(["ansible", "ssh"]),
        help="Reach hosts only by this transport.  [default: ssh to compare, Ansible to change]",
    ),
)
batches = together(
    click.option(
        "--batch",
        type=Share(counts=True),
        default="100%",
        help="Number of hosts to change at a time.  [default: all]",
    ),
    click.option(
        "--max-fail",
        type=Share(),
        default="100%",
        help="Stop when more than this share of a batch failed.  [default: never]",
    ),
)
