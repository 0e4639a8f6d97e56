"""Commands that are run from an open line."""

from __future__ import annotations

import pytest

from gpuctl.cli.dash import acts
from gpuctl.core.errors import InvalidInput
from gpuctl.core.settings import Settings


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
    assert acts.program(command, Settings(), allow_changes=False).question == ""


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
    assert acts.program(dev, Settings(), allow_changes=False).question == f"Run `{dev}`?"
    with pytest.raises(InvalidInput, match="prod-eu is production"):
        acts.program(prod, Settings(), allow_changes=False)
    assert acts.program(prod, Settings(), allow_changes=True).question == f"Run `{prod}`?"
