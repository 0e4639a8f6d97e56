"""Network of each rank as NCCL reports it at startup (NCCL_DEBUG=INFO, subsystems INIT, NET and TUNING)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from gpuctl.nccl.model import Rank, Transport
from gpuctl.nccl.parsing import algorithms
from gpuctl.nccl.parsing.header import NCCL_VERSION
from gpuctl.nccl.parsing.lines import COUNT, Speaker

_Process = tuple[str | None, int | None]
_USING = re.compile(r"^Using network (.+?)\s*$")
_OPENED = re.compile(r"^NET/(IB|Socket) ?: Using (.+)$")
_NIC = re.compile(r"\[\d+\](\S+)")
# After "Selected provider is efa (found 16 nics)" each is named, by its address on the PCI bus.
_OFI_NIC = re.compile(r"^NET/OFI NIC group \d+ device #\d+ (\S+)")
_PROVIDER = re.compile(r"^NET/OFI Selected [Pp]rovider is ([\w;-]+)")
_PLUGIN = re.compile(
    r"^NET/OFI (?:Initializing|Using) (aws-ofi-nccl\b\S*(?: v?\d\S*)?)|^NET/Plugin: Loaded net plugin (.+)$"
)
_VIA = re.compile(r" via NET/([^/]+)/\d+(.*)$")
_CONNECTED = re.compile(r"^Connected all \w+.*\bGDR (\d)")
_RANK = re.compile(rf"\bcomm 0x[0-9a-f]+ rank ({COUNT}) n[rR]anks \d+")
# The first letters of all messages that are read; everything else is passed over unread.
HEADS = frozenset(
    {"Usin", "NET/", "Chan", "Ring", "Conn", "NCCL", "nccl", "comm", "AllR", "AllG", "Redu", "Broa", "RCCL"}
)
_CHANNELS, _RANKED = ("Chan", "Ring"), ("comm", "nccl")
_MOST = 50_000  # threads that are known again by what stands before their messages


@dataclass
class _Heard:
    network: str | None = None
    provider: str | None = None
    nics: tuple[str, ...] = ()
    sockets: tuple[str, ...] = ()
    gdr: bool | None = None
    rank: int | None = None


class Network:
    """Collects reports by process and by GPU; some are printed once for all GPUs of a process."""

    def __init__(self) -> None:
        self._processes: dict[_Process, _Heard] = {}
        self._devices: dict[tuple[_Process, int | None], _Heard] = {}
        self._by_prefix: dict[str, tuple[_Heard, _Heard]] = {}
        self.forced: dict[str, None] = {}  # algorithms that the environment asked for
        self.chosen: dict[str, None] = {}  # algorithms that NCCL said it uses
        self.nccl: str | None = None
        self.cuda: str | None = None
        self.plugin: str | None = None

    def knows(self, prefix: str) -> bool:
        """Return True if a message with this beginning was read, so the line is NCCL's from its first character."""
        return prefix in self._by_prefix

    def fast(self, line: str, at: int) -> bool:
        """Process a whole NCCL line whose message begins at `at`; False if it needs the slow path.

        Nearly all of a large log goes through here, and most of it is irrelevant.
        """
        head = line[at : at + 4]
        if head not in HEADS:
            return True
        if head in _CHANNELS and line.find(" via NET/", at) < 0:
            return True
        both = self._by_prefix.get(line[:at])
        if both is None:
            return False
        if head not in _RANKED or both[1].rank is None:
            self._hear(both, head, line[at:].rstrip())
        return True

    def hear(self, speaker: Speaker, text: str, prefix: str = "") -> None:
        """Process one NCCL message without its "NCCL INFO"; `prefix` is everything in front of it."""
        process = (speaker.host, speaker.pid)
        device = self._devices.setdefault((process, speaker.device), _Heard())
        if speaker.rank is not None and device.rank is None:
            device.rank = speaker.rank
        both = (self._processes.setdefault(process, _Heard()), device)
        if prefix and len(self._by_prefix) < _MOST:
            self._by_prefix[prefix] = both
        self._hear(both, text[:4], text)

    def _hear(self, both: tuple[_Heard, _Heard], head: str, text: str) -> None:
        process, device = both
        if head in _CHANNELS:
            self._via(device, text)
        elif head == "NET/":
            self._net(process, text)
        elif head in _RANKED:
            number = _RANK.search(text)
            device.rank = int(number[1]) if number else device.rank
        elif head in ("Usin", "Conn"):
            self._used(device, text)
        else:
            self._of_run(text)

    def _net(self, heard: _Heard, text: str) -> None:
        opened = _OPENED.match(text)
        if opened:
            names = tuple(_NIC.findall(opened[2].partition("; OOB")[0]))
            if opened[1] == "IB":
                heard.nics = heard.nics or names
            else:
                heard.sockets = heard.sockets or tuple(name.partition(":")[0] for name in names)
        provider = _PROVIDER.match(text)
        if provider:
            heard.provider = provider[1].split(";")[0]
            heard.network = heard.network or "OFI"
        listed = _OFI_NIC.match(text)
        if listed and listed[1] not in heard.nics:
            heard.nics += (listed[1],)
        plugin = _PLUGIN.match(text)
        if plugin:
            self.plugin = self.plugin or (plugin[1] or plugin[2]).strip()

    @staticmethod
    def _via(heard: _Heard, text: str) -> None:
        via = _VIA.search(text)
        if via:
            heard.network = heard.network or via[1]
            heard.gdr = bool(heard.gdr) or "GDRDMA" in via[2]

    def _used(self, heard: _Heard, text: str) -> None:
        using = _USING.match(text)
        heard.network = using[1] if using else heard.network
        connected = _CONNECTED.match(text)
        if connected:
            heard.gdr = bool(heard.gdr) or connected[1] == "1"
        if "Trees disabled" in text:
            self.chosen["Ring"] = None

    def _of_run(self, text: str) -> None:
        if text.startswith("NCCL_"):
            if text.startswith(algorithms.VARIABLES):
                self.forced.update(dict.fromkeys(algorithms.forced(text)))
            return
        self.version(text)
        name = algorithms.chosen(text)
        if name:
            self.chosen[name] = None

    def version(self, text: str) -> None:
        """Process "NCCL version 2.26.2+cuda12.4"."""
        match = NCCL_VERSION.search(text)
        if match:
            self.nccl = self.nccl or match[1]
            self.cuda = self.cuda or match[2]

    def rank(self, speaker: Speaker, ranks: Iterable[Rank]) -> tuple[int | None, str | None]:
        """Rank and host of a speaker, as far as known; of glued names ("devicesnode-3") the listed host counts."""
        ranks = tuple(ranks)
        reported, speaker = speaker, replace(speaker, host=_listed_host(speaker.host, ranks))
        listed = [r for r in ranks if (r.host, r.pid) == (speaker.host, speaker.pid)]
        if speaker.rank is not None:
            host = next((r.host for r in ranks if r.rank == speaker.rank), None)
            return speaker.rank, speaker.host or host or None
        heard = self._devices.get(((reported.host, reported.pid), reported.device))
        if heard is not None and heard.rank is not None:
            return heard.rank, speaker.host
        exact = [r for r in listed if r.device == speaker.device] if len(listed) > 1 else listed
        return (exact[0].rank if len(exact) == 1 else None), speaker.host

    def transports(self, ranks: Iterable[Rank]) -> tuple[Transport, ...]:
        """One transport for each rank that reported a network, in rank order."""
        ranks = tuple(ranks)
        transports = [self._transport(key, heard, ranks) for key, heard in self._devices.items()]
        reported = [one for one in transports if one.network or one.provider or one.nics or one.gdr is not None]
        return tuple(sorted(reported, key=lambda one: (one.rank is None, one.rank or 0, one.host or "")))

    def _transport(self, key: tuple[_Process, int | None], heard: _Heard, ranks: tuple[Rank, ...]) -> Transport:
        process = self._processes.get(key[0], _Heard())
        (host, pid), device = key
        rank, host = self.rank(Speaker(host, pid, device, heard.rank), ranks)
        network = heard.network or process.network
        nics = process.sockets if network == "Socket" else process.nics
        return Transport(rank, host, network, process.provider, nics, heard.gdr)


def _listed_host(host: str | None, ranks: tuple[Rank, ...]) -> str | None:
    """Host of the rank list that a name ends with: other output may stand right in front of a line of NCCL."""
    hosts = {rank.host for rank in ranks if rank.host}
    if not host or not hosts or host in hosts:
        return host
    return max((name for name in hosts if host.endswith(name)), key=len, default=host)
