"""Options that several commands share."""

from __future__ import annotations

from dataclasses import dataclass

import click
import pytest
from click.testing import CliRunner

from gpuctl.cli.shared.options import Duration, Finite, as_request, option_names


@dataclass(frozen=True)
class Where:
    host: str
    port: int = 22


@dataclass(frozen=True)
class Request:
    name: str
    where: Where


@click.command()
@as_request(Request, click.option("--name"), click.option("--host"))
@click.option("--times", type=int, default=1)
def command(request: Request, times: int) -> None:
    click.echo(f"{request} {times}")


@pytest.mark.parametrize("text", ["nan", "inf", "-inf", "1e999", "soon"])
def test_what_is_no_finite_number_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter):
        Finite(0).convert(text, None, None)


def test_a_number_within_its_range_is_taken() -> None:
    assert Finite(1, 10).convert("2.5", None, None) == pytest.approx(2.5)
    with pytest.raises(click.BadParameter):
        Finite(1, 10).convert("11", None, None)


def test_options_become_one_request_with_nested_requests_and_defaults() -> None:
    result = CliRunner().invoke(command, ["--name", "a", "--host", "b", "--times", "3"])
    assert result.output == f"{Request('a', Where('b', 22))} 3\n"


def test_a_request_names_its_options_and_which_of_them_it_needs() -> None:
    assert option_names(Request) == {"name": True, "host": True, "port": False}


@pytest.mark.parametrize(("text", "seconds"), [("90s", 90), ("1.5h", 5400), ("24h", 86400), ("2d", 172800)])
def test_times_have_a_unit(text: str, seconds: float) -> None:
    assert Duration().convert(text, None, None) == seconds


@pytest.mark.parametrize("text", ["600", "0s", "soon", "-1h", "h"])
def test_what_is_no_time_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(click.BadParameter, match="not a time such as 90s, 30m, 1h or 2d"):
        Duration().convert(text, None, None)
