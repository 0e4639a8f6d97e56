"""Decode Xid 144 to 150: the first register names the unit, the bits of the second one name the errors."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from gpuctl.domain.gpu_errors import NvlinkRule

FIRST_V2_DRIVER = 575  # drivers before it encode the unit differently


@dataclass(frozen=True)
class DecodedError:
    """Rules that apply. `unknown_bits`: bits of errorstatus without a rule; all of them if no rule applies."""

    rules: tuple[NvlinkRule, ...]
    unknown_bits: int = 0


def decode(code: int, registers: Sequence[int], driver: str | None, rules: Sequence[NvlinkRule]) -> DecodedError:
    """Rules for the registers of one line; without a driver version, rules of both encodings."""
    if len(registers) < 2:
        return DecodedError(())
    digits, status = f"{registers[0]:032b}", registers[1]
    of_unit = [rule for rule in rules if rule.code == code and _unit_matches(digits, rule, driver)]
    exact = tuple(rule for rule in of_unit if rule.errorstatus == status)
    if exact:
        return DecodedError(exact)
    # Several bits may be set. Values that are no single bit, such as 0x3, are values of their own.
    bits = tuple(rule for rule in of_unit if rule.errorstatus & status and rule.errorstatus.bit_count() == 1)
    return DecodedError(bits, status & ~sum({rule.errorstatus for rule in bits}))


def driver_major(driver: str | None) -> int | None:
    """570 of 570.148.08; None if the version is unknown."""
    match = re.match(r"\d+", driver or "")
    return int(match[0]) if match else None


def _unit_matches(digits: str, rule: NvlinkRule, driver: str | None) -> bool:
    major = driver_major(driver)
    patterns = {rule.v1, rule.v2} if major is None else {rule.v2 if major >= FIRST_V2_DRIVER else rule.v1}
    return any(all(sign in ("-", digit) for sign, digit in zip(pattern, digits, strict=True)) for pattern in patterns)
