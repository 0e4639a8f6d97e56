"""The engine as one piece of text that any Python 3.9 runs from standard input, with the request inside."""

from __future__ import annotations

import base64
import json
import marshal
import zlib
from functools import cache
from importlib.util import MAGIC_NUMBER
from pathlib import Path
from typing import Any

from ansible_collections.gpuctl.fleet.plugins.module_utils import gpuhost

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
import base64, json, marshal, zlib
from importlib.machinery import ModuleSpec
from importlib.util import MAGIC_NUMBER
def unpacked(text):
    return zlib.decompress(base64.b64decode(text))
SOURCES = json.loads(unpacked("{sources}"))
COMPILED = marshal.loads(unpacked("{compiled}")) if MAGIC_NUMBER.hex() == "{magic}" else {{}}
class Carried:
    def find_spec(self, name, path=None, target=None):
        package = name + ".__init__" in SOURCES
        return ModuleSpec(name, self, is_package=package) if package or name in SOURCES else None
    def create_module(self, spec):
        return None
    def get_source(self, name):
        return SOURCES.get(name) or SOURCES[name + ".__init__"]
    def exec_module(self, module):
        name = module.__name__
        code = COMPILED.get(name) or COMPILED.get(name + ".__init__") or compile(self.get_source(name), name, "exec")
        exec(code, module.__dict__)
sys.meta_path.insert(0, Carried())
from gpuhost.api import visit
say(visit(json.loads(unpacked("{request}"))))
"""


def script(request: str, token: str) -> bytes:
    """The program for one visit, a request in JSON. Its answer is the line of its output that starts with the token."""
    named = _engine()
    return _STARTER.format(
        token=token,
        sources=_packed(json.dumps(named).encode()),
        # Compiling takes a host longer than all the rest; where it runs the same Python, it need not.
        compiled=_packed(marshal.dumps({n: compile(text, n, "exec", dont_inherit=True) for n, text in named.items()})),
        magic=MAGIC_NUMBER.hex(),
        request=_packed(request.encode()),
    ).encode()


def answer(output: bytes, token: str) -> dict[str, Any] | None:
    """The answer in what a host printed, whatever else stands around it; None where there is none."""
    _, found, rest = output.rpartition(b"\n" + token.encode())
    if not found:
        return None
    parsed: dict[str, Any] = json.loads(rest.partition(b"\n")[0])
    return parsed


def _packed(data: bytes) -> str:
    return base64.b64encode(zlib.compress(data)).decode()


@cache
def _engine() -> dict[str, str]:
    """Module -> its text, for all of the engine."""
    root = Path(gpuhost.__path__[0])
    return {
        ".".join(["gpuhost", *path.relative_to(root).with_suffix("").parts]): path.read_text()
        for path in sorted(root.rglob("*.py"))
    }
