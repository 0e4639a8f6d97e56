"""Kinds of launch plans, for the options of commands: every start of gpuctl loads them, but not plan.py."""

from __future__ import annotations

from typing import Literal, get_args

Kind = Literal["quick", "full", "pairs", "single"]
KINDS: tuple[Kind, ...] = get_args(Kind)
