"""Adapters that a user names: refused where no node has them, and told where that cannot be known."""

from __future__ import annotations

import pytest

from gpuctl.core.errors import InvalidInput
from gpuctl.nccl.isolate.rail_selection import check
from gpuctl.nccl.topology.adapters import devices
from tests.rig.nccl.fleets import efa, node

OWN = ("mlx5_0", "mlx5_2", "mlx5_10")


def test_adapters_that_all_nodes_have_need_no_word() -> None:
    assert check(["mlx5_10", "mlx5_0:1"], {"h1": OWN, "h2": OWN}) == []


def test_an_adapter_that_no_node_has_is_refused_with_those_there_are() -> None:
    with pytest.raises(InvalidInput, match="no node has such an adapter: h1 has mlx5_0, mlx5_2, mlx5_10; h2 has none"):
        check(["mlx5_1", "mlx5_0"], {"h1": OWN, "h2": ()})


def test_an_adapter_that_some_nodes_lack_is_told() -> None:
    assert check(["mlx5_2"], {"h1": OWN, "h2": ("mlx5_0",)}) == ["mlx5_2 is not on h2"]


def test_where_a_node_could_not_be_asked_nothing_is_refused() -> None:
    assert check(["mlx5_1"], {"h1": OWN, "h2": None}) == [
        "UNKNOWN whether h2 has such adapters, and no node that answered has mlx5_1"
    ]
    assert check(["mlx5_1"], {"h1": None, "h2": None}) == ["UNKNOWN whether h1, h2 have such adapters"]


def test_the_adapters_of_a_node_are_all_of_them_also_efas() -> None:
    assert {"mlx5_0", "mlx5_10"} <= set(devices(node(1)) or ())
    assert any(name.startswith("rdmap") for name in devices(efa(node(1))) or ())
    assert devices({"rdma": {"unread": {"*": "lost"}}}) is None
