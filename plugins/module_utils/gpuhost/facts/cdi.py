"""CDI specifications of NVIDIA's GPUs: what containers get that ask for `nvidia.com/gpu`.

`nvidia-ctk cdi generate` writes the driver's files into them by their versions. After another driver they lead to files
that are gone, and every container that asks for a GPU fails to start.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ..host import Host

if TYPE_CHECKING:
    from .answer_types import StackCdi

# In the order of precedence: of two devices of one name, that of the later folder counts.
FOLDERS = ("/etc/cdi", "/run/cdi")
FORMS = (".yaml", ".yml", ".json")
MOST_MISSING = 5
_KIND = re.compile(r"""^\s*["']?kind["']?\s*:\s*["']?nvidia\.com/gpu["']?\s*,?\s*$""", re.MULTILINE)
_COMPACT_KIND = re.compile(r'"kind"\s*:\s*"nvidia\.com/gpu"')
_DRIVER = re.compile(r"/libcuda\.so\.(\d+\.\d+(?:\.\d+)?)\b")
_NODE = re.compile(r"/dev/nvidia(\d+)\b")
_HOST_PATH = re.compile(r"""["']?hostPath["']?\s*:\s*["']?(/[^\s"',}]+)""")


def read(host: Host) -> list[StackCdi]:
    """The specifications of the kind nvidia.com/gpu, the one that counts last.

    `drivers`: versions of libcuda in it; `gpus`: numbers of the device nodes in it; `missing`: some of the files in it
    that the host does not have.
    """
    paths = [f"{folder}/{name}" for folder in FOLDERS for name in host.listdir(folder) if name.endswith(FORMS)]
    texts = ((path, host.read(path)) for path in paths)
    return [_spec(host, path, text) for path, text in texts if _KIND.search(text) or _COMPACT_KIND.search(text)]


def _spec(host: Host, path: str, text: str) -> StackCdi:
    files = dict.fromkeys(_HOST_PATH.findall(text))
    missing = [file for file in files if not host.exists(file)]
    return {
        "path": path,
        "drivers": sorted(set(_DRIVER.findall(text))),
        "gpus": sorted({int(number) for number in _NODE.findall(text)}),
        "missing": missing[:MOST_MISSING],
    }
