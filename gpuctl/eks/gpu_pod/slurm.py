"""Judge the Slurm of a GPU pod by what sinfo prints: state and GPUs of its one node."""

from __future__ import annotations

import re

from gpuctl.domain.findings import Finding, fail, ok

CHECK = "slurm"
READY = ("idle", "mixed", "allocated", "completing")
GPUS = re.compile(r"gpu:(?:[^:(),]+:)?(\d+)")


def state(output: str) -> tuple[str, str]:
    """State and GPUs of the node, such as ("idle", "gpu:h100:2"); empty if sinfo printed no node."""
    fields = output.split()
    return (fields[0], fields[1]) if len(fields) == 2 else ("", "")


def is_ready(output: str) -> bool:
    return state(output)[0] in READY  # a state with a sign, such as idle*, is one of a node that does not answer


def judge(pod: str, expected: int, output: str) -> Finding:
    """Finding on a node that is ready. `expected`: GPUs that the pod requests."""
    name, gres = state(output)
    count = sum(int(number) for number in GPUS.findall(gres))
    subject, offers = f"Pod {pod}", gres if count else "no GPU"
    if count != expected:
        message = f"Slurm offers {offers}, and the pod requests {expected}: nvidia-smi lists {count} in it"
        return fail(CHECK, subject, message, "`gpuctl eks test-gpu` shows what the pod has")
    return ok(CHECK, subject, f"its node is {name} and offers {offers}: `srun --gpus 1 nvidia-smi` in the pod")
