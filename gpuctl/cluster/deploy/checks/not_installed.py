"""Findings about objects whose kind the cluster does not serve: the operator that brings it is not installed."""

from __future__ import annotations

from gpuctl.domain.findings import Finding, Verdict

OPERATORS = {  # kind -> the operator, and where its installation is described
    "LocalQueue": ("Kueue", "kueue.sigs.k8s.io/docs/installation"),
    "NetworkAttachmentDefinition": ("Multus", "github.com/k8snetworkplumbingwg/multus-cni"),
}


def not_installed(check: str, kind: str, name: str, field: str) -> Finding:
    """Return the finding on an object; `field`: its place in the cluster file."""
    message, install = f"the cluster does not serve {kind}", "ask an admin to install what serves it"
    if kind in OPERATORS:
        operator, page = OPERATORS[kind]
        message, install = f"{message}: {operator} is not installed", f"ask an admin to install {operator} ({page})"
    return Finding(check, f"{kind} {name}", Verdict.FAIL, message, hint=f"{install}, or remove {field}")
