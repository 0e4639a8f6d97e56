"""Parse Kubernetes quantities: 500m, 128Gi, 1e3."""

from __future__ import annotations

from decimal import Decimal, InvalidOperation

_UNITS: dict[str, Decimal | int] = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50, "Ei": 2**60}
_UNITS |= {"k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15, "E": 10**18}
_UNITS |= {"n": Decimal("1e-9"), "u": Decimal("1e-6"), "m": Decimal("1e-3")}


def amount(text: object) -> Decimal | None:
    """Parse a quantity in cores, bytes or pieces; None if it is not one."""
    written = str(text)
    for unit, factor in _UNITS.items():
        if written.endswith(unit):
            number = _number(written.removesuffix(unit))
            return None if number is None else number * factor
    return _number(written)


def _number(text: str) -> Decimal | None:
    try:
        number = Decimal(text)
    except InvalidOperation:
        return None
    return number if number.is_finite() else None


def at_least(has: object, needed: object) -> bool:
    """Return True if the first quantity is at least the second; False if one cannot be parsed."""
    available, needed = amount(has), amount(needed)
    return available is not None and needed is not None and available >= needed
