"""The engine as one piece of text that any Python 3.9 runs from standard input, with the request inside."""

from __future__ import annotations

import base64
import json
import zlib
from functools import cache
from pathlib import Path
from typing import Any

# Runs on hosts of any Python 3, so that an old one can say so: no syntax newer than 3.4 here.
_STARTER = """\
import sys
def say(answer):
    import json
    sys.stdout.write("\\n{token}" + json.dumps(answer) + "\\n")
    sys.stdout.flush()
if sys.version_info < (3, 9):
    say({{"form": 1, "error": {{"wrong": "its Python is %d.%d, gpuctl needs 3.9 or newer" % sys.version_info[:2],
        "hint": "set ansible_python_interpreter to a newer one, such as /usr/bin/python3.11"}}}})
    sys.exit(0)
import base64, json, zlib
from importlib.machinery import ModuleSpec
SOURCES = json.loads(zlib.decompress(base64.b64decode("{sources}")))
class Carried:
    def find_spec(self, name, path=None, target=None):
        package = name + ".__init__" in SOURCES
        return ModuleSpec(name, self, is_package=package) if package or name in SOURCES else None
    def create_module(self, spec):
        return None
    def get_source(self, name):
        return SOURCES.get(name) or SOURCES[name + ".__init__"]
    def exec_module(self, module):
        exec(compile(self.get_source(module.__name__), module.__name__, "exec"), module.__dict__)
sys.meta_path.insert(0, Carried())
from gpuhost.api import visit
say(visit(json.loads(zlib.decompress(base64.b64decode("{request}")))))
"""


def script(request: str, token: str) -> bytes:
    """The program for one visit, a request in JSON. Its answer is the line of its output that starts with the token."""
    return _STARTER.format(token=token, sources=_sources(), request=_packed(request)).encode()


def answer(output: bytes, token: str) -> dict[str, Any] | None:
    """The answer in what a host printed, whatever else stands around it; None where there is none."""
    _, found, rest = output.rpartition(b"\n" + token.encode())
    if not found:
        return None
    parsed: dict[str, Any] = json.loads(rest.partition(b"\n")[0])
    return parsed


def _packed(text: str) -> str:
    return base64.b64encode(zlib.compress(text.encode(), 9)).decode()


@cache
def _sources() -> str:
    from ansible_collections.gpuctl.fleet.plugins.module_utils import gpuhost

    root = Path(gpuhost.__path__[0])
    named = {
        ".".join(["gpuhost", *path.relative_to(root).with_suffix("").parts]): path.read_text()
        for path in sorted(root.rglob("*.py"))
    }
    return _packed(json.dumps(named))
