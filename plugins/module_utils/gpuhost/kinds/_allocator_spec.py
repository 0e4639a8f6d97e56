"""What a knob of the kind `allocator` asks for: an allocator, its options, and whether the service may be restarted."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from ..allocators import ALLOCATORS

# How options are written, one after the other with commas between them.
OPTION = {"jemalloc": r"[a-z_0-9.]+:[\w.:|-]+", "tcmalloc": r"TCMALLOC_[A-Z_]+=[\w.-]+"}
SWITCH = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}


class Wish(NamedTuple):
    """As text: "jemalloc", "jemalloc restart", "jemalloc restart narenas:4,background_thread:true"."""

    allocator: str
    restart: bool = False
    conf: str = ""  # options in the place of ours

    @classmethod
    def of(cls, text: str) -> Wish:
        name, *words = text.split() or [""]
        return cls(name, "restart" in words, " ".join(word for word in words if word != "restart"))

    def __str__(self) -> str:
        return " ".join(filter(None, (self.allocator, "restart" if self.restart else "", self.conf)))

    @property
    def options(self) -> dict[str, str]:
        """The allocator's options, as the variables it reads."""
        if not self.conf:
            return ALLOCATORS[self.allocator].environment
        if self.allocator == "jemalloc":
            return {"MALLOC_CONF": self.conf}
        return dict(pair.partition("=")[::2] for pair in self.conf.split(","))


class Choice(NamedTuple):
    """An allocator's name, or a mapping of `allocator`, `restart` and `conf`."""

    def check(self, value: object) -> str:
        given: dict[str, object] = dict(value) if isinstance(value, Mapping) else Wish.of(str(value))._asdict()
        name, conf = str(given.pop("allocator", "")), str(given.pop("conf", ""))
        restart = str(given.pop("restart", False)).lower()
        if given or name not in ALLOCATORS:
            known = " or ".join(ALLOCATORS)
            raise ValueError(f"must be {known}, or a mapping of allocator, restart and conf, not {value!r}")
        if restart not in SWITCH:
            raise ValueError(f"restart must be true or false, not {restart!r}")
        if conf and not re.fullmatch(f"{OPTION[name]}(,{OPTION[name]})*", conf, re.ASCII):
            raise ValueError(f"conf must be options of {name} with commas between them, not {conf!r}")
        return str(Wish(name, SWITCH[restart], conf))
