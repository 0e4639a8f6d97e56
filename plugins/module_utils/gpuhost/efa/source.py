"""Address of EFA's archives, and who may sign them: a file on the host, so that an undo knows it, too."""

from __future__ import annotations

import json
from typing import NamedTuple

from ..host import Host
from ..model import Unreadable

PATH = "/etc/gpuctl-efa-source.json"
SCRIPT = "efa_installer.sh"
VERIFIER = "gpgv"  # apt's own; it reads one keyring, and writes nothing


class Source(NamedTuple):
    """Address of the archives, without a trailing slash, and fingerprints of keys that may sign them."""

    uri: str
    fingerprints: tuple[str, ...]

    @property
    def text(self) -> str:
        """Content of its file on the host."""
        row = {"written by": "gpuctl, for gpu_stack.efa", "uri": self.uri, "fingerprints": list(self.fingerprints)}
        return json.dumps(row, indent=1) + "\n"


def read(host: Host) -> Source:
    """The source that the host was given; `Unreadable` without one."""
    text = host.read_or_none(PATH)
    try:
        row = json.loads(text or "")
        return Source(str(row["uri"]), tuple(str(name) for name in row["fingerprints"]))
    except (ValueError, KeyError, TypeError) as error:
        wrong = "is missing" if text is None else f"is not understood ({error})"
        raise Unreadable(f"{PATH} {wrong}") from error
