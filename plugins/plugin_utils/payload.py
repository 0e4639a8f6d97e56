"""The engine as one program text with the request inside, which any Python from 3.9 runs from standard input."""

from __future__ import annotations

import base64
import json
import marshal
import shlex
import zlib
from functools import cache
from importlib.machinery import SourceFileLoader
from importlib.util import MAGIC_NUMBER
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

from ansible_collections.gpuctl.fleet.plugins.module_utils import gpuhost

# For a host whose inventory names no interpreter. POSIX shell, without any part of the input. On RHEL 8 and Ubuntu
# 20.04, python3 is a link to a version that is too old, and a newer one may be installed beside it: the name of the
# linked file tells, without a start of Python. If there is only an old one, the program itself reports its version.
_ANY_PYTHON = (
    "o=; for p in python3 /usr/libexec/platform-python python3.14 python3.13 python3.12 python3.11 python3.10 "
    "python3.9; do q=$(command -v $p) || continue; "
    "case $(readlink -f $q) in *3.[0-8]) o=${{o:-$q}}; continue;; esac; exec {sudo}$q {arguments}; done; "
    'test -n "$o" && exec {sudo}$o {arguments}; echo gpuctl-no-python >&2; {rest}exit 127'
)
# Python reads a program from standard input until its end. A program that has more input comes after its length.
_TO_THE_END = ("-IS", "-")
_BY_LENGTH = ("-IS", "-c", "import sys; i=sys.stdin.buffer; exec(i.read(int(i.readline())))")
CHANGE = b"change\n"  # the input that lets a visit in check mode go on to change what it found

# Must run on any Python 3, to report one that is too old: no syntax newer than 3.4.
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
SOURCES = {{}}
def sources():
    if not SOURCES:
        SOURCES.update(json.loads(unpacked("{sources}")))
    return SOURCES
if MAGIC_NUMBER.hex() == "{magic}":
    CARRIED, COMPILED = {places}, unpacked("{compiled}")
    code_of = lambda place, name: marshal.loads(COMPILED[place[0]:place[1]])  # one by one: most are not imported
else:
    CARRIED, code_of = sources(), lambda text, name: compile(text, name, "exec")
class Carried:
    def find_spec(self, name, path=None, target=None):
        package = name + ".__init__" in CARRIED
        return ModuleSpec(name, self, is_package=package) if package or name in CARRIED else None
    def create_module(self, spec):
        return None
    def get_source(self, name):
        return sources().get(name) or sources()[name + ".__init__"]
    def exec_module(self, module):
        name = module.__name__
        exec(code_of(CARRIED.get(name) or CARRIED[name + ".__init__"], name), module.__dict__)
sys.meta_path.insert(0, Carried())
from gpuhost.api import visit
request = json.loads(unpacked("{request}"))
say(visit(request))
"""
_MAY_CHANGE = f"""\
if sys.stdin.buffer.readline() == {CHANGE!r}:
    say(visit(dict(request, check=False)))
"""


def python_arguments(*, stays: bool = False) -> tuple[str, ...]:
    """Arguments with which Python runs a program from standard input; `stays`: as in `script`."""
    return _BY_LENGTH if stays else _TO_THE_END


def any_python(sudo: str = "", *, stays: bool = False) -> str:
    """A shell command that runs a program from standard input in the host's Python 3, whichever it has."""
    arguments = shlex.join(python_arguments(stays=stays))
    # Input that nobody reads breaks the pipe, which Ansible takes for a lost connection. More of it may never end.
    rest = "" if stays else "cat > /dev/null; "
    command = _ANY_PYTHON.format(sudo=f"{sudo} " if sudo else "", arguments=arguments, rest=rest)
    return "exec /bin/sh -c " + shlex.quote(command)


def script(request: str, token: str, *, stays: bool = False) -> bytes:
    """The program for one visit with a request in JSON. The answer is the output line that starts with the token.

    `stays`: the request is in check mode; after its answer the program waits, changes the host if it gets `CHANGE`, and
    answers again. At the end of its input it ends.
    """
    engine = packed_engine()._asdict()
    text = _STARTER.format(token=token, magic=MAGIC_NUMBER.hex(), request=_packed(request.encode()), **engine)
    if not stays:
        return text.encode()
    program = (text + _MAY_CHANGE).encode()
    return b"%d\n%s" % (len(program), program)


def _packed(data: bytes) -> str:
    # Level 1: a better level takes three times as long to save a tenth.
    return base64.b64encode(zlib.compress(data, 1)).decode()


class PackedEngine(NamedTuple):
    """The engine in the program's text: its sources and its compiled modules, packed, and each module's place there.

    `places`: JSON, module -> [start, end] in the bytes that `compiled` unpacks to.
    """

    sources: str
    compiled: str
    places: str


@cache
def packed_engine() -> PackedEngine:
    """The engine's modules for a program's text.

    Compiling takes a host longer than everything else, and is not needed if it runs our version of Python.
    """
    root = Path(gpuhost.__path__[0])
    paths = sorted(root.rglob("*.py"))
    files = {".".join(["gpuhost", *path.relative_to(root).with_suffix("").parts]): path for path in paths}
    # Uses Python's cache of compiled files.
    codes = [marshal.dumps(SourceFileLoader(name, str(path)).get_code(name)) for name, path in files.items()]
    ends = list(accumulate(map(len, codes)))
    places = dict(zip(files, zip([0, *ends[:-1]], ends, strict=True), strict=True))
    sources = {name: path.read_text() for name, path in files.items()}
    # Packed together, as modules resemble each other.
    return PackedEngine(_packed(json.dumps(sources).encode()), _packed(b"".join(codes)), json.dumps(places))
