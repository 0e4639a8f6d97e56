"""Parse kernel logs for errors of GPUs and NVSwitches: Xids, SXids, and GPUs that fell off the bus without an Xid.

The text may come from dmesg, journalctl, syslog, /dev/kmsg or a collector, with any prefix, and span several boots.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta, timezone
from itertools import pairwise

OFF_THE_BUS = 79
CLEAN_UP = 45
CONTAINMENT = (94, 95)
RECOVERY_CHANGED = 154
NVLINK = (74, *range(144, 151))
LONGEST = 4096  # characters of a message that are read: the kernel cuts them at 1024
SAME_FAULT_S = 1.0  # the driver repeats Xid 13 and 31 for every multiprocessor
GAP = 6  # lines between the first and the last line of the message about a lost GPU
_MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]
_MONTH = "|".join(_MONTHS)
_CLOCK_TIME = r"(\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9}))?"


@dataclass(frozen=True)
class Moment:
    """Time of a line. `seconds` compares with other moments of the same `clock`: boot, utc, local or yearless."""

    text: str
    seconds: float
    clock: str


@dataclass(frozen=True)
class NvlinkError:
    """Details of Xid 144 to 150. `severity`: Fatal, Nonfatal or Link Fatal; `link` is None for no single link."""

    unit: str
    severity: str
    link: int | None
    registers: tuple[int, ...]


@dataclass(frozen=True)
class XidEvent:
    """An Xid. `gpu`: PCI address as in /sys, "" if the line has none; `lines`: how many lines are this one event.

    `caused_by`: the earlier Xid that an Xid 45 follows. `reset_needed`, `drain_reset_needed`: RST and D-RST of Xid 94
    and 95. `recovery`: the recovery action in force after an Xid 154. `logged`: False if the driver reported the lost
    GPU without an Xid. `driver`: version of the driver that was loaded before, if the log has it.
    """

    code: int
    gpu: str
    host: str = ""
    boot: int = 0
    moment: Moment | None = None
    pid: int | None = None
    process: str | None = None
    text: str = ""
    gpu_instance: int | None = None
    compute_instance: int | None = None
    caused_by: int | None = None
    reset_needed: bool | None = None
    drain_reset_needed: bool | None = None
    recovery: int | None = None
    nvlink: NvlinkError | None = None
    link: int | None = None
    driver: str | None = None
    logged: bool = True
    lines: int = 1


@dataclass(frozen=True)
class SxidEvent:
    """An SXid. `switch`: number of the NVSwitch; `fatal` is None if the line does not state it."""

    code: int
    switch: int
    address: str
    host: str = ""
    boot: int = 0
    moment: Moment | None = None
    fatal: bool | None = None
    link: int | None = None
    text: str = ""
    lines: int = 1


@dataclass(frozen=True)
class KernelLog:
    """Events in the order of their lines.

    `unreadable`: lines about an error whose number or start is missing. `last_boots`: host -> number of its last boot;
    the log of one boot has the number 0.
    """

    xids: tuple[XidEvent, ...] = ()
    sxids: tuple[SxidEvent, ...] = ()
    unreadable: tuple[str, ...] = ()
    kernel_lines: int = 0
    last_boots: Mapping[str, int] = field(default_factory=dict, hash=False)


def parse(text: str) -> KernelLog:
    """All events of a log; text that is no kernel log has neither events nor `kernel_lines`."""
    return parse_lines(text.splitlines())


def parse_lines(lines: Iterable[str]) -> KernelLog:
    """All events of the lines of one log."""
    reader = _Reader()
    for line in lines:
        reader.read(_unwrapped(_ESCAPE.sub("", line.rstrip("\r\n"))))
    return reader.log()


def address(text: str) -> str:
    """PCI address as in /sys (0000:9b:00.0) of any form of it; "" if it is none."""
    match = _ADDRESS.fullmatch(text.strip())
    if match is None:
        return ""
    domain, bus, device, function = match.groups()
    return f"{int(domain or '0', 16):04x}:{bus}:{device}.{function or 0}".lower()


_ESCAPE = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_ADDRESS = re.compile(
    r"(?:PCI:)?(?:([0-9a-f]{1,8}):)?([0-9a-f]{2}):([0-9a-f]{2})(?:\.([0-7]))?", re.IGNORECASE | re.ASCII
)
_START = re.compile(r"NVRM: |nvidia-nvswitch\d+: ")
# Not the number of a process, as in systemd[1].
_STAMP = re.compile(r"(?:(?<!\w)|(?=\[\s*\d+\.))\[\s*(\d{1,10}(?:\.\d{1,9})?)\s*\]", re.ASCII)
_NEXT_STAMP = re.compile(r"(?:<\d+>)?\[\s*\d{1,10}\.\d{1,9}\s*\]\s*$", re.ASCII)
_KERNEL_LINE = re.compile(
    r"^(?:<\d+>)?\[\s*\d+(?:\.\d+\]|\]\s\S{1,40}:\s)"
    r"|^\d+,\d+,\d+,[^;]*;|\bkernel(?:\[\d+\])?: |^kern +:|NVRM: |nvidia-nvswitch\d+: "
    rf"|^\[\w{{3}} (?:{_MONTH}) +\d+ \d\d:\d\d:\d\d \d{{4}}\] |\[\s*\d+\.\d{{3,6}}\] "
)
_BOOT = re.compile(r"^-- (?:Boot [0-9a-f-]+|Reboot) --|(?:\] |kernel: |;)Linux version \d")
_HOST = re.compile(r"(?<!\S)(\S{1,255}) kernel(?:\[\d+\])?: ")
_DRIVER = re.compile(r"NVRM: loading NVIDIA UNIX .{0,60}?Kernel Module.{0,40}?  ?(\d{3,4}\.\d{1,3}(?:\.\d{1,3})?)\b")
_XID = re.compile(r"NVRM: +Xid *(?:\((?P<where>[^()]{0,80})\))? *: *(?P<code>[0-9]{1,5})(?![\w.])(?P<rest>.*)")
_ABOUT_XID = re.compile(r"NVRM: +Xid\b")
_WHERE = re.compile(r"(\S+)(?: GPU-I:([0-9]+))?(?: GPU-CI:([0-9]+))?")
_PROCESS = re.compile(r"pid='?([0-9]{1,10}|<unknown>)'?(?:, name=(.*?))?(?:, (.*))?$")
_CAUSE = re.compile(r"caused by previous Xid ([0-9]{1,5})\b")
_RESET = re.compile(r"\bRST: (Yes|No)(?:, D-RST: (Yes|No))?")
_RECOVERY = re.compile(r"recovery action changed from .{0,200} to (0x[0-9a-f]{1,8})\b", re.IGNORECASE)
_NVLINK = re.compile(
    r"(?P<unit>[A-Z][A-Z0-9_]*) +(?P<severity>Link Fatal|Fatal|Non-?fatal) +XC[0-9]+ +i[0-9]+ +"
    r"Link +(?P<link>-?[0-9]{1,3})(?: \((?P<registers>[0-9a-fx ]*)\))?",
    re.IGNORECASE,
)
_LINK = re.compile(r"\blink ([0-9]{1,3})\b", re.IGNORECASE)
_SXID = re.compile(
    r"nvidia-nvswitch(?P<switch>[0-9]{1,4}): SXid \((?P<where>[^()]{0,40})\): (?P<code>[0-9]{4,6})(?![\w.])(?P<rest>.*)"
)
_ABOUT_SXID = re.compile(r"nvidia-nvswitch[0-9]+: SXid\b")
_SXID_TEXT = re.compile(r", *(?:(Fatal|Non-fatal), *)?(?:Link (-?[0-9]{1,4}) *)?(.*)", re.IGNORECASE)
_CONTINUED = re.compile(r", *(?:Severity\b|Data *\{)")
_LOST_GPU = re.compile(r"NVRM: +(?:The NVIDIA )?GPU (\S+?):?(?:\s|$)")


# ---- lines -----------------------------------------------------------------------------------------------------------


@dataclass
class _Reader:
    """State of the lines that were read."""

    events: list[XidEvent] = field(default_factory=list)
    switch_events: list[SxidEvent] = field(default_factory=list)
    continued: list[tuple[str, int, int, str]] = field(default_factory=list)  # host, switch, code, line
    unreadable: list[str] = field(default_factory=list)
    kernel_lines: int = 0
    boots: dict[str, int] = field(default_factory=dict)  # host -> number of its boot
    active: set[str] = field(default_factory=set)  # hosts with a line since their last mark of a boot
    driver: str | None = None
    named_gpu: tuple[str, str, Moment | None, int] | None = None  # address, host, moment, line of "The NVIDIA GPU …"

    def read(self, line: str) -> None:
        if line.startswith("-- "):
            for host in self.boots if _BOOT.search(line) else ():
                self._booted(host)
            return
        if _KERNEL_LINE.search(line):
            self.kernel_lines += 1
            host = _host(line)
            self.boots.setdefault(host, 0)
            if _BOOT.search(line):
                self._booted(host)
            else:
                self.active.add(host)
        starts = [match.start() for match in _START.finditer(line)]
        before, prefix = 0, ""
        for start, end in pairwise([*starts, len(line)]):
            prefix, before = line[before:start], start
            self._message(line[start : min(end, start + LONGEST)].strip(), prefix[-LONGEST:])

    def _booted(self, host: str) -> None:
        """Count a boot once, although several lines mark it."""
        self.boots[host] += host in self.active
        self.active.discard(host)

    def _message(self, message: str, prefix: str) -> None:
        """Read one message of the driver, without its prefix."""
        host, moment = _host(prefix), _moment(prefix)
        if driver := _DRIVER.match(message):
            self.driver = driver[1]
        elif match := _XID.match(message):
            self.events.append(self._xid(match, host, moment))
        elif match := _SXID.match(message):
            self._sxid(match, host, moment)
        elif _ABOUT_XID.match(message) or _ABOUT_SXID.match(message):
            self.unreadable.append(message)
        elif message.startswith("NVRM: "):
            self._lost(message, host, moment)

    def _xid(self, match: re.Match[str], host: str, moment: Moment | None) -> XidEvent:
        where = _WHERE.match(match["where"] or "")
        rest = _NEXT_STAMP.sub("", match["rest"]).lstrip(", ").strip()
        process = _PROCESS.match(rest)
        pid, name, text = process.groups() if process else (None, None, rest)
        event = XidEvent(
            code=int(match["code"]),
            gpu=address(where[1]) if where else "",
            host=host,
            boot=self.boots.get(host, 0),
            moment=moment,
            pid=int(pid) if pid and pid.isdecimal() else None,
            process=_known(name),
            text=(text or "").strip(),
            gpu_instance=int(where[2]) if where and where[2] else None,
            compute_instance=int(where[3]) if where and where[3] else None,
            driver=self.driver,
        )
        return _detailed(event)

    def _sxid(self, match: re.Match[str], host: str, moment: Moment | None) -> None:
        switch, code, rest = int(match["switch"]), int(match["code"]), _NEXT_STAMP.sub("", match["rest"]).strip()
        if _CONTINUED.match(rest):
            self.continued.append((host, switch, code, match[0]))
            return
        text = _SXID_TEXT.match(rest)
        self.switch_events.append(
            SxidEvent(
                code=code,
                switch=switch,
                address=address(match["where"]),
                host=host,
                boot=self.boots.get(host, 0),
                moment=moment,
                fatal=text[1].lower() == "fatal" if text and text[1] else None,
                link=int(text[2]) if text and text[2] else None,
                text=text[3].strip() if text else rest,
            )
        )

    def _lost(self, message: str, host: str, moment: Moment | None) -> None:
        """Read the message of three lines about a GPU that fell off the bus; its address is in the first one."""
        named = _LOST_GPU.match(message)
        gpu = address(named[1]) if named else ""
        if gpu:
            self.named_gpu = (gpu, host, moment, self.kernel_lines)
        if "fallen off the bus" not in message:
            return
        if not gpu and self.named_gpu and self.kernel_lines - self.named_gpu[3] <= GAP:
            gpu, host, moment, _ = self.named_gpu
        boot, text = self.boots.get(host, 0), "GPU has fallen off the bus"
        event = XidEvent(OFF_THE_BUS, gpu, host, boot, moment, text=text, driver=self.driver, logged=False)
        self.events.append(event)

    def log(self) -> KernelLog:
        complete = {(event.host, event.switch, event.code) for event in self.switch_events}
        orphans = {key[:3]: key[3] for key in self.continued if key[:3] not in complete}
        return KernelLog(
            xids=tuple(_faults(_lost_once(self.events))),
            sxids=tuple(_switch_faults(self.switch_events)),
            unreadable=tuple(dict.fromkeys([*self.unreadable, *orphans.values()])),
            kernel_lines=self.kernel_lines,
            last_boots=dict(self.boots),
        )


def _known(name: str | None) -> str | None:
    plain = (name or "").strip().strip("'")
    return None if plain in ("", "<unknown>") else plain


def _detailed(event: XidEvent) -> XidEvent:
    """The event with what the text of some codes adds."""
    if event.code == CLEAN_UP:
        cause = _CAUSE.search(event.text)
        return replace(event, caused_by=int(cause[1])) if cause else event
    if event.code in CONTAINMENT:
        reset = _RESET.search(event.text)
        flags = (reset[1] == "Yes", reset[2] == "Yes" if reset[2] else None) if reset else (None, None)
        return replace(event, reset_needed=flags[0], drain_reset_needed=flags[1])
    if event.code == RECOVERY_CHANGED:
        recovery = _RECOVERY.search(event.text)
        return replace(event, recovery=int(recovery[1], 16)) if recovery else event
    if event.code in NVLINK:
        link, nvlink = _LINK.search(event.text), _NVLINK.match(event.text)
        return replace(event, link=int(link[1]) if link else None, nvlink=_nvlink(nvlink) if nvlink else None)
    return event


def _nvlink(match: re.Match[str]) -> NvlinkError:
    numbers = re.findall(r"0x[0-9a-f]{1,8}\b", match["registers"] or "", re.IGNORECASE)
    link = int(match["link"])
    return NvlinkError(
        match["unit"], match["severity"], link if link >= 0 else None, tuple(int(number, 16) for number in numbers)
    )


def _unwrapped(line: str) -> str:
    """A line of JSON (journald, Docker, log collectors) as the line that it carries; others unchanged."""
    if not line.lstrip().startswith("{"):
        return line
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return line
    if not isinstance(record, dict):
        return line
    message = next(
        (record[key] for key in ("MESSAGE", "message", "log", "msg") if isinstance(record.get(key), str)), ""
    )
    stamp = next((record[key] for key in ("time", "timestamp", "ts") if isinstance(record.get(key), str)), "")
    microseconds = str(record.get("__REALTIME_TIMESTAMP", ""))
    if re.fullmatch(r"[0-9]{1,17}", microseconds):
        stamp = (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=int(microseconds))).isoformat()
    kernel = f"{record.get('_HOSTNAME', '-')} kernel: " if record.get("_TRANSPORT") == "kernel" else ""
    return f"{stamp} {kernel}{message}".replace("\n", " ").strip()


def _host(prefix: str) -> str:
    matches = _HOST.findall(prefix)
    return matches[-1] if matches and matches[-1] != "-" and not matches[-1].endswith(("]", ":")) else ""


# ---- times -----------------------------------------------------------------------------------------------------------


def _moment(prefix: str) -> Moment | None:
    """The most exact time of a prefix: a date with a zone before one without, and time since boot last."""
    for pattern, read in _TIMES:
        for match in reversed(list(pattern.finditer(prefix))):
            try:
                return read(match)
            except (ValueError, OverflowError):
                continue
    return None


def _iso(match: re.Match[str]) -> Moment:
    year, month, day, hour, minute, second = (int(match[number]) for number in range(1, 7))
    zone = UTC
    if match[8] and match[8] != "Z":
        offset = timedelta(hours=int(match[8][1:3]), minutes=int(match[8][-2:]))
        zone = timezone(-offset if match[8][0] == "-" else offset)
    when = datetime(year, month, day, hour, minute, second, tzinfo=zone)
    return Moment(match[0].strip(), when.timestamp() + _fraction(match[7]), "utc" if match[8] else "local")


def _ctime(match: re.Match[str]) -> Moment:
    month, day, hour, minute, second = _MONTHS.index(match[1]) + 1, *(int(match[number]) for number in (2, 3, 4, 5))
    when = datetime(int(match[7]), month, day, hour, minute, second, tzinfo=UTC)
    return Moment(match[0], when.timestamp() + _fraction(match[6]), "local")


def _syslog(match: re.Match[str]) -> Moment:
    month, day, hour, minute, second = _MONTHS.index(match[1]) + 1, *(int(match[number]) for number in (2, 3, 4, 5))
    when = datetime(2000, month, day, hour, minute, second, tzinfo=UTC)  # a leap year, as the line has none
    return Moment(match[0], when.timestamp() + _fraction(match[6]), "yearless")


def _fraction(digits: str | None) -> float:
    return float(f"0.{digits}") if digits else 0.0


_TIMES = (
    (re.compile(rf"(\d{{4}})-(\d\d)-(\d\d)[T ]{_CLOCK_TIME}(?: ?(Z|[+-]\d\d:?\d\d))?", re.ASCII), _iso),
    (re.compile(rf"\b({_MONTH}) +(\d{{1,2}}) {_CLOCK_TIME} (\d{{4}})\b", re.ASCII), _ctime),
    (re.compile(rf"\b({_MONTH}) +(\d{{1,2}}) {_CLOCK_TIME}", re.ASCII), _syslog),
    (re.compile(r"^(\d{10}\.\d{3,6}) ", re.ASCII), lambda match: Moment(match[1], float(match[1]), "utc")),
    (_STAMP, lambda match: Moment(match[1], float(match[1]), "boot")),
    (
        re.compile(r"^\d+,\d+,(\d{1,18}),[^;]*;", re.ASCII),  # /dev/kmsg
        lambda match: Moment(match[1], int(match[1]) / 1e6, "boot"),
    ),
)


# ---- one fault, one event --------------------------------------------------------------------------------------------


def _lost_once(events: Sequence[XidEvent]) -> Iterator[XidEvent]:
    """Drop reports of a lost GPU beside its Xid 79, and repeated ones."""
    lost: set[tuple[str, int, str]] = {
        (event.host, event.boot, event.gpu) for event in events if event.logged and event.code == OFF_THE_BUS
    }
    for event in events:
        place = (event.host, event.boot, event.gpu)
        if event.logged:
            yield event
        elif place not in lost and not (event.gpu == "" and any(known[:2] == place[:2] for known in lost)):
            lost.add(place)
            yield event


def _faults(events: Iterator[XidEvent]) -> list[XidEvent]:
    """Join events with the same Xid, GPU, process and details, of which each follows within a second."""
    faults: list[XidEvent] = []
    lines: list[int] = []
    latest: dict[tuple[object, ...], tuple[int, Moment | None, int]] = {}
    for number, event in enumerate(events):
        text = event.text if event.code == RECOVERY_CHANGED or event.nvlink else ""
        process = (event.pid, event.gpu_instance, event.compute_instance)
        details = (event.caused_by, event.link, event.reset_needed, event.drain_reset_needed, text)
        key = (event.host, event.boot, event.gpu, event.code, process, details)
        index, moment, at = latest.get(key, (-1, None, -1))
        if index >= 0 and _within(moment, event.moment, number - at):
            lines[index] += 1
        else:
            index = len(faults)
            faults.append(event)
            lines.append(1)
        latest[key] = (index, event.moment, number)
    return [replace(fault, lines=count) for fault, count in zip(faults, lines, strict=True)]


def _switch_faults(events: Sequence[SxidEvent]) -> list[SxidEvent]:
    faults: list[SxidEvent] = []
    lines: list[int] = []
    latest: dict[tuple[object, ...], tuple[int, Moment | None, int]] = {}
    for number, event in enumerate(events):
        key = (event.host, event.boot, event.switch, event.address, event.code, event.link, event.fatal)
        index, moment, at = latest.get(key, (-1, None, -1))
        if index >= 0 and _within(moment, event.moment, number - at):
            lines[index] += 1
        else:
            index = len(faults)
            faults.append(event)
            lines.append(1)
        latest[key] = (index, event.moment, number)
    return [replace(fault, lines=count) for fault, count in zip(faults, lines, strict=True)]


def _within(earlier: Moment | None, later: Moment | None, distance: int) -> bool:
    """True if the two are one fault; without times, only events directly after each other (`distance` 1) are."""
    if earlier is None or later is None:
        return earlier is later and distance == 1
    return earlier.clock == later.clock and abs(later.seconds - earlier.seconds) <= SAME_FAULT_S
