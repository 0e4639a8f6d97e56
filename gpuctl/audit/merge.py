"""Merge the recordings of a node into facts of one form, whatever program printed them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from gpuctl.audit.formats.model import FILE, Record, doubt
from gpuctl.core.text import named, plural
from gpuctl.domain.findings import Finding, Verdict, ok
from gpuctl.domain.node_facts import ABSENT

LISTS = ("storage", "totals", "nvlink_errors")  # subjects of which a node may have several files
# Subjects of which a file is all: a doubt about the file is one about them. Others name each value that is not known.
OF_WHOLE_FILES = (*LISTS, "topology")


def merged(files: Mapping[str, Record]) -> tuple[dict[str, Any], list[Finding], list[dict[str, Any]]]:
    """Facts of a node by subject, findings about its files, and facts that contend with them.

    `files`: name -> record; of two records with one subject the first counts, and the other one is judged on its own.
    """
    facts: dict[str, Any] = {}
    findings: list[Finding] = []
    rivals: list[dict[str, Any]] = []
    for name, record in files.items():
        findings += [replace(finding, message=f"{name}: {finding.message}") for finding in record.findings]
        spare = {}
        for subject, read in record.facts.items():
            values = _doubted(name, record, read) if subject in OF_WHOLE_FILES else read
            if subject in LISTS and subject in facts:
                facts[subject] = _joined(facts[subject], values)
            elif subject in facts:
                spare[subject] = values
                facts[subject] = _completed(facts[subject], values) if subject == "gpu" else facts[subject]
            else:
                facts[subject] = values
        if "gpu" in spare:
            rivals.append(spare)
        if not record.facts and not record.findings:
            findings.append(ok(FILE, "", f"{name} {record.judged or 'has nothing to judge'}"))
    findings += _nvlink(facts)
    return facts, findings, rivals


def _doubted(name: str, record: Record, facts: Mapping[str, Any]) -> Mapping[str, Any]:
    """Facts with a doubt about their file under `unread`, so that no check of them is OK."""
    doubts = any(finding.verdict is not Verdict.OK for finding in record.findings)
    return {**facts, "unread": {**facts["unread"], f"a part of {name}": f"see {FILE}"}} if doubts else facts


def _completed(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    """Facts of GPUs, with what the first output does not have and the second one does, for the same GPU."""
    others = {gpu["uuid"]: gpu for gpu in second["gpus"] or () if gpu["uuid"]}
    gpus = [_with_more(gpu, others.get(gpu["uuid"])) for gpu in first["gpus"] or ()]
    return {**first, "gpus": gpus if first["gpus"] is not None else None}


def has_gpus_of(facts: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """True if facts of a node have every GPU of others; one without a uuid may be any."""
    uuids = {gpu["uuid"] for gpu in facts["gpu"]["gpus"] or ()}
    return all(gpu["uuid"] and gpu["uuid"] in uuids for gpu in other["gpu"]["gpus"] or ())


def _with_more(gpu: Mapping[str, Any], other: Mapping[str, Any] | None) -> dict[str, Any]:
    if other is None:
        return dict(gpu)
    more = {name: other[name] for name, value in gpu.items() if value is None and other.get(name) is not None}
    more = {name: value for name, value in more.items() if gpu["unread"].get(name, ABSENT) == ABSENT}
    return {**gpu, **more, "unread": {name: why for name, why in gpu["unread"].items() if name not in more}}


def _joined(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    """Lists of both, and what only one has."""
    both = {**first, **second}
    for name in both:
        one, other = first.get(name), second.get(name)
        if isinstance(one, list) and isinstance(other, list):
            both[name] = [*one, *other]
        elif isinstance(one, dict) and isinstance(other, dict):
            both[name] = {**one, **other}
    return both


def _nvlink(facts: dict[str, Any]) -> list[Finding]:
    """Give the links of `nvlink -s` the errors of `nvlink -e`, and compare their GPUs with the node's."""
    links, errors = facts.get("nvlink"), facts.get("nvlink_errors")
    if links is None:
        return []
    if errors is not None:
        by_gpu = {gpu["gpu"]: gpu["errors"] for gpu in errors["gpus"]}
        gpus = [{**gpu, "errors": by_gpu.get(gpu["gpu"], gpu["errors"])} for gpu in links["gpus"]]
        facts["nvlink"] = {**links, "gpus": gpus, "unread": {**links["unread"], **errors["unread"]}}
        del facts["nvlink_errors"]
    return _fewer(len(links["gpus"]), facts.get("gpu", {}).get("gpus"))


def _fewer(number: int, gpus: Sequence[Any] | None) -> list[Finding]:
    if not gpus or number >= len(gpus):
        return []
    return [doubt(f"the state of NVLinks is that of {plural(number, 'GPU')}, and it has {len(gpus)}: it is cut")]


def unread_files(errors: Mapping[str, str], unrecognised: Sequence[str]) -> list[Finding]:
    """UNKNOWN for files that were not judged."""
    findings = [doubt(f"{name}: {error}", "") for name, error in errors.items()]
    if unrecognised:
        hint = "no format that gpuctl judges: gpuctl audit --help, and the page of the audit list them"
        findings.append(doubt(f"not recognised, and not judged: {named(unrecognised, 16)}", hint))
    return findings
