"""Read the state of network adapters: ibstat, ibstatus, and `ethtool -S`."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from gpuctl.audit.formats.model import FILE, Record, doubt
from gpuctl.core.text import named, plural
from gpuctl.domain.findings import Finding, Verdict

_CA = re.compile(r"CA '([\w.:-]+)'")
_STATUS = re.compile(r"Infiniband device '(?P<device>[\w.:-]+)' port (?P<port>\d+) status:", re.IGNORECASE)
_PORT = re.compile(r"(?P<device>)\s+Port (?P<port>\d+):\s*$")
_FIELD = re.compile(r"\s+([A-Za-z][\w ]*?):\s+(.*?)\s*$")
_OF_PORTS = frozenset({"state", "physical state", "phys state", "rate", "link layer", "link_layer"})
_FAILED = re.compile(r"ibpanic|can't (?:open|list)|umad_init|failed")
ETHTOOL = re.compile(r"^\s+(\S.*?): (\d+)\s*$")


def is_ibstat(start: str) -> bool:
    return bool(re.search(r"^\s*CA '", start, re.MULTILINE)) or bool(_STATUS.search(start))


def read_ibstat(text: str) -> Record:
    """Subject "rdma" of ibstat or ibstatus; a port that is cut before its link layer is no port."""
    reading = _Reading()
    for line in text.splitlines():
        reading.line(line)
    ports, stated = reading.ports, reading.stated
    needed = ("state", "physical", "rate_gbps", "link")
    whole = [port for port in ports if all(port[name] is not None for name in needed)]
    findings = [doubt(f"port {port['device']}:{port['port']} is not whole") for port in ports if port not in whole]
    if reading.odd:
        findings.append(doubt(f"lines of ports are missing or in disorder: {named(reading.odd, 4)}"))
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


@dataclass
class _Reading:
    """What the lines so far have shown. `stated`: device -> number of its ports; `odd`: values in disorder."""

    ports: list[dict[str, Any]] = field(default_factory=list)
    stated: dict[str, int] = field(default_factory=dict)
    odd: dict[str, None] = field(default_factory=dict)
    device: str = ""
    firmware: str | None = None
    fields: set[str] = field(default_factory=set)  # of the last port

    def line(self, line: str) -> None:
        if head := _CA.match(line.strip()):
            self.device, self.firmware = head[1], None
        elif port := _STATUS.match(line.strip()) or _PORT.match(line):
            self.ports.append(_port(port["device"] or self.device, int(port["port"]), self.firmware))
            self.fields = set()
        elif value := _FIELD.match(line):
            self._value(value[1].lower(), value[2])

    def _value(self, name: str, value: str) -> None:
        if name == "number of ports" and value.isdigit():
            self.stated[self.device] = int(value)
        elif name == "firmware version":
            self.firmware = value
        elif name in _OF_PORTS:
            if not self.ports or name in self.fields:
                self.odd[name] = None
            self.fields.add(name)
            if self.ports:
                _set(self.ports[-1], name, value)


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
    if stray := sum(bool(ETHTOOL.match(line)) for line in text.partition("NIC statistics:")[0].splitlines()):
        findings.append(doubt(f"{plural(stray, 'counter')} belong to no adapter: its lines are in disorder"))
    if empty or not adapters:
        findings.append(doubt("it has no counters"))
    return Record({"totals": {"adapters": adapters, "unread": {}}} if adapters else {}, tuple(findings))
