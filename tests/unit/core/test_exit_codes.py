"""The worst code decides: 4 > 2 > 3 > 1 > 0."""

from __future__ import annotations

import pytest

from gpuctl.core import exit_codes


@pytest.mark.parametrize(("codes", "code"), [([], 0), ([0, 1], 1), ([1, 3], 3), ([3, 2, 1], 2), ([2, 4, 3], 4)])
def test_the_worst_code_decides(codes: list[int], code: int) -> None:
    assert exit_codes.worst(codes) == code
