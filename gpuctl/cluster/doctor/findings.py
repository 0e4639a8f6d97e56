"""Compare pods with each other: those whose value is not the majority's."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from gpuctl.core.text import named
from gpuctl.domain.findings import Finding, fail, majority

FindingFactory = Callable[[str, str, str, str], Finding]


def odd(
    check: str, values: Mapping[str, object], what: str, hint: str = "", report: FindingFactory = fail
) -> list[Finding]:
    """Pods whose value differs from the majority's; without a majority, one finding that names both sides.

    `what` has a place for the value: "image {}".
    """
    compared = majority({pod: str(value) for pod, value in values.items()})
    if compared.sides:
        sides = [f"{what.format(value)} in {named(pods)}" for value, pods in compared.sides.items()]
        return [report(check, named(f"Pod {name}" for name in values), "; ".join(sides), hint)]
    usual = what.format(compared.usual)
    return [
        report(check, f"Pod {pod}", f"{what.format(value)}, most pods have {usual}", hint)
        for pod, value in compared.odd.items()
    ]
