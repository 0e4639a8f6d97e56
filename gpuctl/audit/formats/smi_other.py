"""Read nvidia-smi's table, its lists, its failures, the topology matrix and the state of the NVLinks."""

from __future__ import annotations

import re
from typing import Any

from gpuctl.audit.formats.model import FILE, Record, doubt
from gpuctl.core.text import named, plural
from gpuctl.domain.findings import Finding, Verdict, fail
from gpuctl.domain.gpu_health import LOST, RESET
from gpuctl.engine import gpu_xml, nvlink

ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
FAILURES = (
    (r"Unable to determine the device handle for GPU\S* ?\S*: (?P<why>.+)", LOST),
    (r"NVIDIA-SMI has failed because (?P<why>.+)", "load the driver: modprobe nvidia; read dmesg for NVRM"),
    (r"Failed to initialize NVML: (?P<why>Driver/library version mismatch)", "reboot, or reload the kernel modules"),
    (r"Failed to initialize NVML: (?P<why>.+)", "load the driver: modprobe nvidia; read dmesg for NVRM"),
    (r"(?P<why>No devices were found)", "look for the GPUs on the bus: lspci -d 10de:; read dmesg for NVRM"),
    (r"(?P<why>GPU \S+: GPU is lost.*|GPU is lost.*)", LOST),
)


# ---- failures --------------------------------------------------------------------------------------------------------


def has_failed(start: str) -> bool:
    return bool(failures(start))


def failures(text: str) -> list[Finding]:
    """FAIL for sentences by which nvidia-smi refuses to answer."""
    found: dict[str, Finding] = {}
    for line in text.splitlines():
        for pattern, hint in FAILURES:
            if re.search(pattern, line):
                message = f"nvidia-smi failed: {line.strip().lstrip('> ')[:160]}"
                found.setdefault(message, fail("gpu-count", "", message, hint))
                break
    return list(found.values())


def read_failure(text: str) -> Record:
    return Record(findings=tuple(failures(text)))


# ---- the table and lists ---------------------------------------------------------------------------------------------


def is_table(start: str) -> bool:
    return bool(re.search(r"^\| NVIDIA-SMI \d", start, re.MULTILINE))


def read_table(text: str) -> Record:
    """FAIL for errors in cells; UNKNOWN else: the table says little about a GPU's health."""
    findings = failures(text)
    cells = [
        cell.strip() for line in text.splitlines() if line.startswith("|") for cell in re.split(r"[|]|\s{2,}", line)
    ]
    for name in ("ERR!", "GPU is lost", "Unknown Error", "GPU requires reset"):
        if any(name in cell for cell in cells):
            hint = RESET if "reset" in name else LOST
            findings.append(fail("gpu-memory", "", f'nvidia-smi shows "{name}" in place of a value', hint))
    findings.append(doubt("nvidia-smi's table does not show the state of a GPU's memory", "save nvidia-smi -q -x"))
    return Record(findings=tuple(findings))


def is_list(start: str) -> bool:
    """True if nothing but GPUs and MIG devices is listed, after the command perhaps."""
    lines = [line for line in start.splitlines() if line.strip() and not re.match(r"[$#>]|\S+@", line)]
    return bool(lines) and all(re.match(r"GPU \d+: .+\(UUID: \S|\s+MIG \S.*\(UUID: \S", line) for line in lines)


def read_list(text: str) -> Record:
    number = len(re.findall(r"^GPU \d+: ", text, re.MULTILINE))
    return Record(findings=tuple(failures(text)), judged=f"lists {plural(number, 'GPU')}")


def is_samples(start: str) -> bool:
    """True for `nvidia-smi dmon` and `pmon`."""
    return bool(re.match(r"\s*# gpu\s", start))


def read_samples(text: str) -> Record:
    return Record(findings=tuple(failures(text)), judged="has samples of what the GPUs did")


# ---- topology --------------------------------------------------------------------------------------------------------

_ROW = re.compile(r"(GPU\d+|NIC\d+|mlx\d+_\w+)\s+(.*)")
_LINK = re.compile(r"X|NV\d+|PIX|PXB|PHB|NODE|SYS|SOC|C2C|N/A|ERR!|\?")


def is_topology(start: str) -> bool:
    return bool(re.search(r"^\s*(?:\x1b\[\d+m)?\s*GPU0\s.*(?:CPU Affinity|GPU1\b)", start, re.MULTILINE))


def read_topology(text: str) -> Record:
    """Subject "topology": {gpus, links, unread}; `links`: "GPU0 GPU1" -> "NV18"; every pair once."""
    lines = [ANSI.sub("", line).strip() for line in text.splitlines()]
    at = next((i for i, line in enumerate(lines) if re.match(r"GPU0\s+(?![\sX])", line)), None)
    if at is None:  # a line that a control character has split
        return Record(findings=(doubt("the matrix has no whole line with the names of its columns"),))
    columns = re.findall(r"GPU\d+(?!\S)|NIC\d+(?!\S)|mlx\d+_\w+", re.split(r"CPU Affinity", lines[at])[0])
    cells: dict[str, dict[str, str]] = {}
    for line in lines[at + 1 :]:
        row = _ROW.match(line)
        if row and row[1] in columns:
            cells.setdefault(row[1], dict(zip(columns, row[2].split(), strict=False)))
    gpus = [name for name in columns if name.startswith("GPU")]
    strange = [word for word in re.split(r"CPU Affinity", lines[at])[0].split() if word not in columns]
    rows = [row[1] for line in lines[at + 1 :] if (row := _ROW.match(line)) and row[1].startswith("GPU")]
    strange += [name for name in dict.fromkeys(rows) if name not in columns or rows.count(name) > 1]
    links: dict[str, str | None] = {}
    for index, first in enumerate(gpus):
        for second in gpus[index + 1 :]:
            there, back = cells.get(first, {}).get(second), cells.get(second, {}).get(first)
            known = there if there == back and there and _LINK.fullmatch(there) else None
            links[f"{first} {second}"] = known
    lacking = sorted(
        {
            gpu
            for pair, link in links.items()
            if link is None
            for gpu in pair.split()
            if len(cells.get(gpu, {})) < len(columns)
        }
    )
    findings = (
        [doubt(f"the matrix has {plural(len(gpus), 'GPU')}, and no whole row of {named(lacking, 8)}")]
        if lacking
        else []
    )
    unclear = [pair for pair, link in links.items() if link is None and not set(pair.split()) & set(lacking)]
    if strange:
        findings.append(doubt(f"the matrix has rows or columns that were not understood: {named(strange, 4)}"))
    if unclear:
        findings.append(doubt(f"the matrix is not symmetric, or not understood, for {named(unclear, 4)}"))
    return Record({"topology": {"gpus": len(gpus), "links": links, "unread": {}}}, tuple(findings))


# ---- NVLinks ---------------------------------------------------------------------------------------------------------


def nvlink_matches(start: str) -> bool:
    """True for `nvlink -s`; also where every GPU refuses."""
    refused = any(sentence in start.lower() for sentence in (*nvlink.NONE, nvlink.ALL_INACTIVE))
    states = re.search(r"^\s+Link \d+: (?:[\d.]+ GB/s|<?inactive)", start, re.MULTILINE | re.IGNORECASE)
    return bool(states or refused) and bool(re.search(r"^GPU \d+: ", start, re.MULTILINE))


def is_capabilities(start: str) -> bool:
    return bool(re.search(r"^\s+Link \d+, P2P is supported: ", start, re.MULTILINE))


def read_capabilities(text: str) -> Record:
    return Record(findings=tuple(failures(text)), judged="lists what the NVLinks are capable of")


def read_nvlink(text: str) -> Record:
    unread: dict[str, str] = {}
    gpus = nvlink.parse(text, unread)
    odd = {gpu["gpu"]: len(gpu["links"]) for gpu in gpus if gpu["links"]}
    usual = max(odd.values(), default=0)
    findings = [
        doubt(f"GPU {gpu} lists {number} NVLinks, others {usual}: the output is cut, or it has lost some")
        for gpu, number in odd.items()
        if number < usual
    ]
    for gpu in gpus:
        known = {int(number) for number in gpu["links"] or ()}
        if lacking := sorted(set(range(max(known, default=-1) + 1)) - known):
            findings.append(doubt(f"GPU {gpu['gpu']} does not list NVLink {named(map(str, lacking), 8)}"))
    silent = [gpu["gpu"] for gpu in gpus if gpu["links"] is None and f"GPU {gpu['gpu']} links" not in unread]
    if silent and odd:
        findings.append(doubt(f"GPU {named(map(str, silent), 8)} lists no NVLinks, others {usual}"))
    numbers = [gpu["gpu"] for gpu in gpus]
    if len(set(numbers)) < len(numbers):
        findings.append(doubt("a GPU is listed several times: save one reading"))
    if not gpus:
        findings.append(doubt("it has no GPU"))
    findings += _disorder(text)
    return Record({"nvlink": {"gpus": gpus, "unread": unread}} if gpus else {}, tuple(findings))


def _disorder(text: str) -> list[Finding]:
    """UNKNOWN for links before the first GPU."""
    before = re.split(r"^GPU \d+: ", text, maxsplit=1, flags=re.MULTILINE)[0]
    stray = len(re.findall(r"^\s+Link \d+[:,]", before, re.MULTILINE))
    return [doubt(f"{plural(stray, 'line')} belong to no GPU: its lines are in disorder")] if stray else []


def is_nvlink_errors(start: str) -> bool:
    return bool(
        re.search(r"^\s+Link \d+[:,] .+(?:Error|Count|packet|BER|Retransmit).*: ", start, re.MULTILINE | re.IGNORECASE)
    )


def read_nvlink_errors(text: str) -> Record:
    """Subject "nvlink_errors": {GPU: {counter: errors}}, which belongs to the links of `nvlink -s`."""
    errors = nvlink.parse_errors(text)
    heads = {int(number) for number in re.findall(r"^GPU (\d+): ", text, re.MULTILINE)}
    findings = [] if errors else [doubt("it has no counter of a GPU")]
    findings += _disorder(text)
    silent = sorted(heads - set(errors))
    if silent and errors:
        findings.append(doubt(f"GPU {named(map(str, silent), 8)} lists no counters"))
    if re.search(r"^\s*\[?\.{3}\]?\s*$", text, re.MULTILINE):
        findings.append(doubt("parts of it were left out"))
    bad = [
        line.strip()
        for line in text.splitlines()
        if re.search(r"Link \d+", line) and not re.match(r"\s+Link \d+[:,][^:]+: (?:\d[\d.e+-]*|N/A)\s*(?:\S+)?$", line)
    ]
    if bad:
        findings.append(_unreadable(bad))
    gpus: list[dict[str, Any]] = [{"gpu": gpu, "links": None, "errors": counts} for gpu, counts in errors.items()]
    return Record({"nvlink_errors": {"gpus": gpus, "unread": {}}} if gpus else {}, tuple(findings))


def _unreadable(lines: list[str]) -> Finding:
    failed = any(error in line.lower() for line in lines for error in gpu_xml.ERRORS)
    message = f"{plural(len(lines), 'line')} without a number, the first: {lines[0][:120]}"
    return Finding(FILE, "", Verdict.FAIL if failed else Verdict.UNKNOWN, message, {}, LOST if failed else "")
