"""The worst code decides: 4 > 2 > 3 > 1 > 0."""

from __future__ import annotations

import pytest

from gpuctl.domain.findings import worst_code


@pytest.mark.parametrize(("codes", "worst"), [([], 0), ([0, 1], 1), ([1, 3], 3), ([3, 2, 1], 2), ([2, 4, 3], 4)])
def test_the_worst_code_decides(codes: list[int], worst: int) -> None:
    assert worst_code(codes) == worst
