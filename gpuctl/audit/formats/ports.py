"""Read the state of network adapters: ibstat, ibstatus, and `ethtool -S`."""

from __future__ import annotations

import re
from typing import Any

from gpuctl.audit.formats.model import FILE, Record, doubt
from gpuctl.core.text import named, plural
from gpuctl.domain.findings import Finding, Verdict

_CA = re.compile(r"CA '([\w.:-]+)'")
_STATUS = re.compile(r"Infiniband device '(?P<device>[\w.:-]+)' port (?P<port>\d+) status:", re.IGNORECASE)
_PORT = re.compile(r"(?P<device>)\s+Port (?P<port>\d+):\s*$")
_FIELD = re.compile(r"\s+([A-Za-z][\w ]*?):\s+(.*?)\s*$")
_FAILED = re.compile(r"ibpanic|can't (?:open|list)|umad_init|failed")
ETHTOOL = re.compile(r"^\s+(\S.*?): (\d+)\s*$")


def is_ibstat(start: str) -> bool:
    return bool(re.search(r"^\s*CA '", start, re.MULTILINE)) or bool(_STATUS.search(start))


def read_ibstat(text: str) -> Record:
    """Subject "rdma" of ibstat or ibstatus; a port that is cut before its link layer is no port."""
    ports, stated = _ports(text)
    needed = ("state", "physical", "rate_gbps", "link")
    whole = [port for port in ports if all(port[name] is not None for name in needed)]
    findings = [doubt(f"port {port['device']}:{port['port']} is not whole") for port in ports if port not in whole]
    short = [name for name, number in stated.items() if sum(port["device"] == name for port in ports) < number]
    if short:
        findings.append(doubt(f"{named(short, 4)} has fewer ports in it than it states"))
    failed = [line.strip() for line in text.splitlines() if _FAILED.search(line)]
    findings += [
        Finding(FILE, "", Verdict.UNKNOWN, f"ibstat failed: {line[:160]}", {}, "run it as root") for line in failed
    ]
    names = [f"{port['device']}:{port['port']}" for port in whole]
    if len(set(names)) < len(names):
        findings.append(doubt("a port is listed several times: save one reading"))
    if not whole:
        return Record(findings=tuple(findings) or (doubt("it has no port"),))
    return Record({"rdma": {"ports": whole, "efa": None, "unread": {}}}, tuple(findings))


def _ports(text: str) -> tuple[list[dict[str, Any]], dict[str, int]]:
    """Ports, and how many each device states to have."""
    ports: list[dict[str, Any]] = []
    stated: dict[str, int] = {}
    device = ""
    firmware: str | None = None
    for line in text.splitlines():
        if head := _CA.match(line.strip()):
            device, firmware = head[1], None
        elif port := _STATUS.match(line.strip()) or _PORT.match(line):
            ports.append(_port(port["device"] or device, int(port["port"]), firmware))
        elif field := _FIELD.match(line):
            name, value = field[1].lower(), field[2]
            if name == "number of ports" and value.isdigit():
                stated[device] = int(value)
            elif name == "firmware version":
                firmware = value
            elif ports:
                _set(ports[-1], name, value)
    return ports, stated


def _port(device: str, number: int, firmware: str | None) -> dict[str, Any]:
    """Form of rdma.py; what these programs do not print is None."""
    names = ("state", "physical", "rate_gbps", "link", "net", "numa")
    return {"device": device, "port": number, "efa": False, **dict.fromkeys(names), "firmware": firmware, "gids": []}


def _set(port: dict[str, Any], name: str, value: str) -> None:
    plain = re.sub(r"^\d+: ", "", value)
    rate = re.match(r"\d+(?:\.\d+)?", value)
    if name == "state":
        port["state"] = plain.upper()
    elif name in {"physical state", "phys state"}:
        port["physical"] = plain
    elif name == "rate":
        port["rate_gbps"] = float(rate[0]) if rate else None
    elif name in {"link layer", "link_layer"}:
        port["link"] = value


def is_ethtool(start: str) -> bool:
    return "NIC statistics:" in start


def read_ethtool(text: str) -> Record:
    """Subject "totals": {adapters}: counters since the driver was loaded, for each list of them."""
    adapters: list[dict[str, Any]] = []
    name, odd = "", []
    for line in text.splitlines():
        if command := re.search(r"ethtool -S (\S+)", line):
            name = command[1]
        elif line.strip() == "NIC statistics:":
            adapters.append({"name": name, "counters": {}})
            name = ""
        elif adapters and (counter := ETHTOOL.match(line)):
            adapters[-1]["counters"][counter[1].strip()] = int(counter[2])
        elif adapters and line.strip() and line.startswith(" "):
            odd.append(line.strip())
    empty = [adapter for adapter in adapters if not adapter["counters"]]
    findings = [doubt(f"{plural(len(odd), 'line')} without a number, the first: {odd[0][:80]}")] if odd else []
    if empty or not adapters:
        findings.append(doubt("it has no counters"))
    return Record({"totals": {"adapters": adapters, "unread": {}}} if adapters else {}, tuple(findings))
