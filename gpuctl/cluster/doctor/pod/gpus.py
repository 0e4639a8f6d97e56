"""Output of nvidia-smi, and the driver's version; nothing runs on a GPU."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.host import Host

MODULE = "/proc/driver/nvidia/version"
MISSING, LATE = 127, 124  # of Host.run


def read(host: Host, request: Mapping[str, Any]) -> dict[str, Any]:
    """Return {xml, error, missing, late, open_module}. `error`: the last error line if nvidia-smi failed.

    `missing`: it is not installed. `late`: it did not answer in time. `open_module`: None if no driver is loaded.
    """
    module = host.read_or_none(MODULE)
    done = host.run("nvidia-smi", "-q", "-x", limit=float(request["limit_s"]) - 5)
    return {
        # If a GPU is lost, it prints an error line, then the GPUs that answer, and fails.
        "xml": done.out if "<" in done.out else "",
        "error": "" if done.ok else _complaint(done.out, done.err, done.code),
        "missing": done.code == MISSING,
        "late": done.code == LATE,
        "open_module": None if module is None else "Open Kernel Module" in module,
    }


def _complaint(out: str, err: str, code: int) -> str:
    before = out.partition("<")[0]
    plain = [line.strip() for line in f"{before}\n{err}".splitlines() if line.strip()]
    return plain[-1][:300] if plain else f"exit status {code}"
