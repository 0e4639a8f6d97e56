"""Options that several commands share."""

from __future__ import annotations

import click
import pytest

from gpuctl.cli.shared.options import Finite


@pytest.mark.parametrize("text", ["nan", "inf", "-inf", "1e999", "soon"])
def test_what_is_no_finite_number_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter):
        Finite(0).convert(text, None, None)


def test_a_number_within_its_range_is_taken() -> None:
    assert Finite(1, 10).convert("2.5", None, None) == pytest.approx(2.5)
    with pytest.raises(click.BadParameter):
        Finite(1, 10).convert("11", None, None)
