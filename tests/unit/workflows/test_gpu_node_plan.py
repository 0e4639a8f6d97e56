"""The gpu_stack of hosts from an inventory's variables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gpuctl.core.errors import InvalidInput
from gpuctl.workflows.gpu_node_plan import stacks_of_variables

SOURCE = Path("prod")


def test_hosts_without_a_stack_are_left_out_if_others_have_one() -> None:
    hosts: dict[str, dict[str, Any]] = {"a": {"gpu_stack": {"driver": 580}}, "login": {}}
    stacks = stacks_of_variables(hosts, SOURCE)
    assert {name: stack.request.driver for name, stack in stacks.items()} == {"a": 580}
    assert stacks["a"].plain == {"driver": "580", "flavour": "auto", "repository": "nvidia"}


@pytest.mark.parametrize(
    ("variables", "reason"),
    [
        ({}, "no host of prod has the variable gpu_stack"),
        ({"gpu_stack": {"driver": "{{ newest }}"}}, "it is a Jinja template"),
        ({"gpu_stack": {"drivers": 580}}, "did you mean driver"),
        ({"gpu_stack": "580"}, "gpu_stack"),
    ],
)
def test_variables_that_cannot_be_used_are_refused(variables: dict[str, Any], reason: str) -> None:
    with pytest.raises(InvalidInput, match=reason):
        stacks_of_variables({"a": variables}, SOURCE)
