"""Values of GPU settings: their normal texts, and the problems that are reported."""

from __future__ import annotations

import pytest
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.kinds import gpu

ONE = {"1g.10gb": 1}


@pytest.mark.parametrize(
    ("key", "value", "normal"),
    [
        ("persistence", True, "on"),
        ("power_limit", "500", "500"),
        ("graphics_clock", 1410, "1410,1410"),
        ("graphics_clock", "1410-1980", "1410,1980"),
        ("memory_clock", "1410,1980", "1410,1980"),
        ("mig", [{"instances": False}], '[{"filter":[],"gpus":"all","layout":"off"}]'),
        (
            "mig",
            [{"gpus": ["1", 0], "filter": "*H100*", "instances": {"1g.10gb": "4", "3g.40gb": 1}}],
            '[{"filter":["*H100*"],"gpus":[0,1],"layout":"3g.40gb:1 1g.10gb:4"}]',
        ),
        ("mps", [], "[]"),
        ("mps", [{"name": "a", "gpus": 0}], '[{"gpus":[0],"name":"a"}]'),
    ],
)
def test_a_value_has_one_normal_text_which_is_its_own_normal_text(key: str, value: object, normal: str) -> None:
    kind = gpu.TYPES[key]
    assert kind.check(value) == normal
    assert kind.check(normal) == normal


@pytest.mark.parametrize(
    ("key", "value", "problem"),
    [
        ("power_limit", "500W", "whole number without a unit"),
        ("graphics_clock", "1980-1410", "from the lower to the higher"),
        ("graphics_clock", True, "a clock in MHz"),
        ("compute_mode", "exclusive", "must be one of default, exclusive_process, prohibited"),
        ("mig", "1g.10gb", "must be a list of entries"),
        ("mig", [{"gpus": "all"}], "entry 1 needs instances"),
        ("mig", [{"instances": ONE, "device": 0}], "entry 1 has device; it takes gpus, filter, instances"),
        ("mig", [{"instances": ONE}, {"instances": {"1g10": 1}}], "entry 2 instances: '1g10' is no name"),
        ("mig", [{"instances": {"1g.10gb": 8}}], "must be a count from 1 to 7, not 8"),
        ("mig", [{"instances": {"1g.10gb+me": 2}}], "exists once per GPU"),
        ("mig", [{"gpus": [0, 0], "instances": ONE}], "names a GPU twice"),
        ("mig", [{"gpus": "first", "instances": ONE}], "gpus must be all, or numbers"),
        ("mig", [{"filter": [7], "instances": ONE}], "filter must list models or PCI ids"),
        ("mps", [{"gpus": 0}], "entry 1 name must be"),
        ("mps", [{"name": "a b"}], "lower-case letters"),
        ("mps", [{"name": "a", "gpus": 0}, {"name": "b", "gpus": [0]}], "gives a GPU to two daemons"),
        ("mps", [{"name": "a"}, {"name": "b", "gpus": [1]}], "gives a GPU to two daemons"),
        ("mps", [{"name": "a", "gpus": 0}, {"name": "a", "gpus": 1}], "two daemons of one name"),
        ("mps", [{"name": "a", "active_thread_percentage": 0}], "from 1 to 100"),
        ("mps", [{"name": "a", "memory": "10"}], "such as 10G or 512M"),
    ],
)
def test_a_wrong_value_is_refused_with_its_place(key: str, value: object, problem: str) -> None:
    with pytest.raises(ValueError, match=r"^(must|has|gives|entry)") as error:
        gpu.TYPES[key].check(value)
    assert problem in str(error.value)
