"""Judge the GPUs of a pod by nvidia-smi and, if the image has it, torch."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from typing import Any

from gpuctl.domain.findings import Finding, fail, ok, unknown, warn

QUERY = ("nvidia-smi", "--query-gpu=index,name,driver_version,memory.total", "--format=csv,noheader,nounits")
MOST_QUOTED = 200  # characters of an output
NO_TORCH = "no torch"
# A product of two matrices on each GPU, compared with the exact value: all entries are 2 * SIZE.
TORCH = """
import json
try:
    import torch
except ModuleNotFoundError as error:
    if error.name != "torch":
        raise  # torch exists, and does not import
    print("no torch")
    raise SystemExit(0)
result = {"version": torch.__version__, "cuda": torch.version.cuda, "count": torch.cuda.device_count(), "wrong": {}}
for index in range(result["count"]):
    try:
        size = 2048
        ones = torch.ones(size, size, device=f"cuda:{index}")
        product = ones @ (2 * ones)
        if not bool((product == 2 * size).all()):
            result["wrong"][str(index)] = "a matrix product is wrong"
    except Exception as error:
        result["wrong"][str(index)] = (str(error).splitlines() or ["no message"])[0]
print(json.dumps(result))
"""


def judge_smi(pod: str, expected: int | None, code: int | None, output: str) -> Iterator[Finding]:
    """Findings on nvidia-smi: `code` None if the image has no such program, `expected` None if that is not known."""
    check, hint = "nvidia-smi", "look at the device plugin and the driver of its node"
    if code is None:
        message = "the pod has no nvidia-smi: the container runtime of its node adds no driver"
        yield fail(check, pod, message, "use a node whose image has NVIDIA's container toolkit")
        return
    if code != 0:
        yield fail(check, pod, f"nvidia-smi ended with exit code {code}: {_gist(output)}", hint)
        return
    rows = [[cell.strip() for cell in row] for row in csv.reader(output.splitlines()) if row]
    if not rows or any(len(row) != 4 for row in rows):
        yield unknown(check, pod, f"nvidia-smi printed no list of GPUs: {_gist(output)}", hint)
        return
    if expected is None:
        yield unknown(check, pod, f"nvidia-smi lists {len(rows)} GPUs; the number requested is not known")
    elif len(rows) != expected:
        yield fail(check, pod, f"nvidia-smi lists {len(rows)} of {expected} GPUs", hint)
    for index, name, driver, memory in rows:
        subject = f"{pod} GPU {index}"
        if not memory.isdigit():  # nvidia-smi prints an error in place of a value
            yield fail(check, subject, f"nvidia-smi reports {_gist(memory)} for its memory", hint)
        else:
            yield ok(check, subject, f"{name}, {memory} MiB, driver {driver}")


def judge_torch(pod: str, expected: int | None, code: int | None, output: str) -> Iterator[Finding]:
    """Findings on torch: `code` None if the image has no Python."""
    check = "torch"
    if code is None or (code == 0 and output.strip() == NO_TORCH):
        yield warn(check, pod, "the image has no torch: nothing was computed on its GPUs")
        return
    lines = output.strip().splitlines()
    try:
        plain: Any = json.loads(lines[-1]) if code == 0 and lines else None
        count, wrong, cuda = int(plain["count"]), dict(plain["wrong"]), plain["cuda"]
        version = str(plain["version"])
    except (ValueError, KeyError, TypeError):
        how = "printed no result" if code == 0 else f"ended with exit code {code}"
        yield fail(check, pod, f"the test with torch {how}: {_gist(output)}", "run `python3 -c 'import torch'` there")
        return
    built = f"torch {version}, CUDA {cuda or 'none'}"
    if count == 0 or (expected is not None and count != expected):
        message = f"torch reaches {count} of {'UNKNOWN' if expected is None else expected} GPUs ({built})"
        yield fail(check, pod, message, "compare the CUDA version with that of the driver; a build for CPUs has none")
    for index in range(count):
        subject = f"{pod} GPU {index}"
        if why := wrong.get(str(index)):
            yield fail(check, subject, f"{_gist(str(why))} ({built})", "compare with `nvidia-smi -q` there")
        else:
            yield ok(check, subject, f"a matrix product is right ({built})")


def _gist(text: str) -> str:
    lines = [line for line in text.strip().splitlines() if line.strip()]
    return lines[-1].strip()[:MOST_QUOTED] if lines else "no output"
