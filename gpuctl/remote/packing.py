"""Pack our modules as a program for a pod's Python: they arrive on standard input, before the first message."""

from __future__ import annotations

import json
import zlib
from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from gpuctl.edges.kube.python import TAKE

OLDEST = (3, 8)
HOST = "ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost"
# Modules of gpuhost/facts that read the load of storage, in import order.
STORAGE_FACTS = ("counters", "io_counters", "io_limits", "lustre", "read_trial", "storage_users", "storage_load")
# Also parses in old versions of Python, which then report that they are too old.
STARTER = f"""
import sys
if sys.version_info < {OLDEST!r}:
    sys.exit("gpuctl-old-python %d.%d" % sys.version_info[:2])
{TAKE}
import json, types, zlib
carried = json.loads(zlib.decompress(take(int(take(10)))))
for name, text in carried:
    package, _, last = name.rpartition(".")
    if package not in sys.modules:
        sys.modules[package] = types.ModuleType(package)
        sys.modules[package].__path__ = []
    module = types.ModuleType(name)
    sys.modules[name] = module
    setattr(sys.modules[package], last, module)
    exec(compile(text, name, "exec"), module.__dict__)
sys.exit(module.main())
"""


def host_modules(*facts: str) -> tuple[str, ...]:
    """Return the names of modules of gpuhost/facts, after those that they all need. `facts`: in import order."""
    return tuple(
        f"{HOST}.{name}" for name in ("bounded_output", "host", "topology", *(f"facts.{one}" for one in facts))
    )


def command(python: str) -> list[str]:
    """Return the argument list that starts the program in a pod, isolated from its environment and site packages."""
    return [python, "-ISc", STARTER]


@cache
def packed(modules: Sequence[str]) -> bytes:
    """Pack modules by name, with the length in front; the `main` of the last one is run."""
    texts = [(name, _text(name)) for name in modules]
    packed = zlib.compress(json.dumps(texts).encode())
    return b"%10d" % len(packed) + packed


def _text(name: str) -> str:
    spec = find_spec(name)
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError(name)
    return Path(spec.origin).read_text(encoding="utf-8")
