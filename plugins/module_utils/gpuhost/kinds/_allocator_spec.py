"""The value of an allocator knob: an allocator, its options, and permission to restart the service."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from ..allocators import ALLOCATORS

# The form of one option; several are separated by commas.
OPTION = {"jemalloc": r"[a-z_0-9.]+:[\w.:|-]+", "tcmalloc": r"TCMALLOC_[A-Z_]+=[\w.-]+"}
SWITCH = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}


class AllocatorSpec(NamedTuple):
    """Text form: "jemalloc", "jemalloc restart", "jemalloc restart narenas:4,background_thread:true"."""

    allocator: str
    restart: bool = False
    conf: str = ""  # options that replace ours

    @classmethod
    def of(cls, text: str) -> AllocatorSpec:
        name, *options = text.split() or [""]
        return cls(name, "restart" in options, " ".join(option for option in options if option != "restart"))

    def __str__(self) -> str:
        return " ".join(filter(None, (self.allocator, "restart" if self.restart else "", self.conf)))

    @property
    def options(self) -> dict[str, str]:
        """The allocator's options as environment variables."""
        if not self.conf:
            return ALLOCATORS[self.allocator].environment
        if self.allocator == "jemalloc":
            return {"MALLOC_CONF": self.conf}
        return dict(pair.partition("=")[::2] for pair in self.conf.split(","))


class AllocatorType(NamedTuple):
    """Accepts an allocator's name, or a mapping of `allocator`, `restart` and `conf`."""

    def check(self, value: object) -> str:
        fields: dict[str, object] = (
            dict(value) if isinstance(value, Mapping) else AllocatorSpec.of(str(value))._asdict()
        )
        name, conf = str(fields.pop("allocator", "")), str(fields.pop("conf", ""))
        restart = str(fields.pop("restart", False)).lower()
        if fields or name not in ALLOCATORS:
            known = " or ".join(ALLOCATORS)
            raise ValueError(f"must be {known}, or a mapping of allocator, restart and conf, not {value!r}")
        if restart not in SWITCH:
            raise ValueError(f"restart must be true or false, not {restart!r}")
        if conf and not re.fullmatch(f"{OPTION[name]}(,{OPTION[name]})*", conf, re.ASCII):
            raise ValueError(f"conf must be options of {name}, separated by commas, not {conf!r}")
        return str(AllocatorSpec(name, SWITCH[restart], conf))
