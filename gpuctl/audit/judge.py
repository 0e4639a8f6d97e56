"""Judge a kernel log: what its errors need; a log without kernel messages proves nothing."""

from __future__ import annotations

from collections.abc import Sequence

from gpuctl.core.text import plural
from gpuctl.domain import kernel_faults, xid_actions
from gpuctl.domain.findings import Finding, Verdict, unknown
from gpuctl.domain.gpu_errors import Catalogue
from gpuctl.domain.xid_lines import KernelLog


def judge(
    name: str, log: KernelLog, catalogue: Catalogue, faults: Sequence[str] = (), notes: Sequence[Finding] = ()
) -> list[Finding]:
    """Findings for the log `name`, never none: OK if it has kernel messages and no error, UNKNOWN without any.

    `faults`: its lines about other faults than those of GPUs. `notes`: what else is in it.
    """
    findings = [*xid_actions.findings(log, catalogue), *kernel_faults.find(faults, ""), *notes]
    if not log.kernel_lines and not log.xids and not log.sxids and not log.unreadable:
        hint = "save the kernel log with `journalctl -k -b` or `dmesg`, and name that file"
        findings.append(unknown("kernel-log", "", f"no kernel messages in {name}", hint, kernel_lines=0))
    if findings:
        return findings
    message = f"no fault in {plural(log.kernel_lines, 'kernel message')}"
    return [Finding("kernel-log", "", Verdict.OK, message, {"kernel_lines": log.kernel_lines})]
