"""Output of nvidia-smi, and the driver's version; nothing runs on a GPU."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.host import Host

MODULE = "/proc/driver/nvidia/version"
MISSING, LATE = 127, 124  # of Host.run


def read(host: Host, request: Mapping[str, Any]) -> dict[str, Any]:
    """{xml, said, missing, late, open_module}. `said`: what nvidia-smi complained of, where it failed.

    `missing`: there is none; `late`: it gave no answer.
    """
    module = host.read_or_none(MODULE)
    done = host.run("nvidia-smi", "-q", "-x", limit=float(request["limit_s"]) - 5)
    return {
        # With a GPU lost it still prints those that answer, after a line of complaint, and fails.
        "xml": done.out if "<" in done.out else "",
        "said": "" if done.ok else _complaint(done.out, done.err, done.code),
        "missing": done.code == MISSING,
        "late": done.code == LATE,
        "open_module": None if module is None else "Open Kernel Module" in module,
    }


def _complaint(out: str, err: str, code: int) -> str:
    before = out.partition("<")[0]
    plain = [line.strip() for line in f"{before}\n{err}".splitlines() if line.strip()]
    return plain[-1][:300] if plain else f"exit status {code}"
