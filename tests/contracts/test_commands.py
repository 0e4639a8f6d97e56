"""Commands and their functions agree: click passes options by name, which no type checker sees."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Iterator

import click
import pytest

from gpuctl.cli.app import app
from gpuctl.cli.shared.options import option_names
from tests.rig.source_files import ROOT, nodes, python_files


def commands(group: click.Group, path: str = "gpuctl") -> Iterator[tuple[str, click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        assert command.name == name
        yield f"{path} {name}", command
        if isinstance(command, click.Group):
            yield from commands(command, f"{path} {name}")


COMMANDS = dict(commands(app))


def passed(command: click.Command) -> set[str]:
    return {parameter.name for parameter in command.params if parameter.expose_value and parameter.name}


def taken(callback: Callable[..., object]) -> dict[str, bool]:
    """Options that a command takes, as parameters or as fields of its request -> True if they are required."""
    parameters = inspect.signature(inspect.unwrap(callback)).parameters.values()
    named = {p.name: p.default is p.empty for p in parameters if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)}
    request = getattr(callback, "request", None)
    return named if request is None else {**named, **option_names(request)}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_takes_exactly_the_options_it_declares(name: str) -> None:
    command = COMMANDS[name]
    if command.callback is None:
        assert isinstance(command, click.Group)
        return
    parameters = inspect.signature(inspect.unwrap(command.callback)).parameters.values()
    takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)
    options = taken(command.callback)
    required = {option for option, is_required in options.items() if is_required}
    assert takes_any or passed(command) <= set(options), passed(command) - set(options)
    context = {"ctx", "context", "request"} - passed(command)
    assert required - context <= passed(command), required - passed(command)


@pytest.mark.parametrize("group", ["cluster", "nccl"])
def test_commands_take_their_options_as_typed_values(group: str) -> None:
    untyped = [
        f"{path.relative_to(ROOT)}:{function.lineno}"
        for path in python_files(ROOT / f"gpuctl/cli/{group}")
        for function in nodes(path)
        if isinstance(function, ast.FunctionDef) and function.args.kwarg is not None
    ]
    assert untyped == []


def test_options_that_are_read_by_their_name_exist() -> None:
    """`params["x"]` of a function's own **params, anywhere in cli: some command has the option x."""
    known = {name for command in COMMANDS.values() for name in passed(command)}
    wrong = []
    for path in python_files(ROOT / "gpuctl/cli"):
        for function in nodes(path):
            if not isinstance(function, ast.FunctionDef) or function.args.kwarg is None:
                continue
            rest = function.args.kwarg.arg
            wrong += [f"{path.relative_to(ROOT)}: {name}" for name in read_by_name(function, rest) if name not in known]
    assert wrong == []


def read_by_name(function: ast.FunctionDef, rest: str) -> set[str]:
    return {
        node.slice.value
        for node in ast.walk(function)
        if isinstance(node, ast.Subscript)
        and isinstance(node.value, ast.Name)
        and node.value.id == rest
        and isinstance(node.slice, ast.Constant)
        and isinstance(node.slice.value, str)
    }
