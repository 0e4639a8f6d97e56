"""Judge a kernel log: what its errors need; a log without kernel messages proves nothing."""

from __future__ import annotations

from gpuctl.core.text import plural
from gpuctl.domain import xid_actions
from gpuctl.domain.findings import Finding, Verdict, ok, unknown
from gpuctl.domain.gpu_errors import Catalogue
from gpuctl.domain.xid_lines import KernelLog


def judge(name: str, log: KernelLog, catalogue: Catalogue) -> list[Finding]:
    """Findings for the log `name`, never none: OK if it has kernel messages and no error, else UNKNOWN."""
    findings = xid_actions.findings(log, catalogue)
    if not log.kernel_lines and not findings:
        hint = "save the kernel log with `journalctl -k -b` or `dmesg`, and name that file"
        return [unknown("kernel_log", "", f"no kernel messages in {name}", hint, kernel_lines=0)]
    if findings:
        return findings
    finding = ok("xid", "", f"no Xid or SXid in {plural(log.kernel_lines, 'kernel message')}")
    return [Finding(finding.check, "", Verdict.OK, finding.message, {"kernel_lines": log.kernel_lines})]
