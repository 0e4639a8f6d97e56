"""Messages of NCCL and PyTorch in recent logs, with their meaning."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from gpuctl.cluster.doctor.hang.pods import job_age
from gpuctl.cluster.doctor.model import Facts
from gpuctl.domain.findings import Finding, fail, or_ok, unknown, warn

SEVERE = re.compile(r"NCCL (?:WARN|ERROR) (?P<text>.*)|(?P<torch>.*Watchdog caught collective operation timeout.*)")
RETRIES = "12: the peer did not acknowledge packets"
RECENT_S = 3600.0  # limit of a message's age while no job runs; this project's own choice
CLOCKS_S = 60.0
LOST = "the adapters cannot reach each other: check GID index, VLAN, MTU, flow control, cables; try ib_write_bw"


@dataclass(frozen=True)
class Pattern:
    """A message, its meaning and a hint. `cause`: it names a cause; else it is a consequence."""

    pattern: str
    meaning: str
    hint: str
    cause: bool = True


# Texts: NCCL's source (src/transport/net_ib.cc, src/misc/{ibvwrap,socket,shmutils}.cc, src/bootstrap.cc); meaning of
# the numbers: ibv_wc_status of rdma-core. NVIDIA/nccl#426, #2013, NVIDIA/nccl-tests#185, #206.
PATTERNS = (
    Pattern(
        r"no (?:socket )?interface found",
        "NCCL_SOCKET_IFNAME leaves it no interface",
        "correct network.rdma.interfaces or network.tcp.interface_exclude",
    ),
    Pattern(r"Got completion .*(?:error |status=)12\b", f"a transfer failed with {RETRIES}", LOST),
    Pattern(
        r"Got completion .*(?:error |status=)5\b", "a transfer was flushed after another one failed", LOST, cause=False
    ),
    Pattern(r"Got completion .*(?:error |status=)\d+", "a transfer between adapters failed", LOST),
    Pattern(
        r"ibv_reg_mr\w* failed.*[Cc]annot allocate memory",
        "memory for RDMA could not be locked",
        "the limit of locked memory is too low: LimitMEMLOCK of the nodes' container runtime",
    ),
    Pattern(r"ibv_modify_qp failed.*[Tt]imed out", "two adapters cannot reach each other", f"{LOST}; NCCL_CROSS_NIC=0"),
    Pattern(r"ibv_modify_qp failed", "a connection between adapters could not be established", LOST),
    Pattern(
        r"ibv_\w+ failed", "a call to the adapter's driver failed", "`dmesg` of the node, `ibv_devinfo` in the pod"
    ),
    Pattern(
        r"creating shared memory segment|No space left on device",
        "shared memory is too small",
        "raise resources.shm; remove leftovers of earlier jobs in /dev/shm",
    ),
    Pattern(r"Duplicate GPU detected", "two ranks use the same GPU", "is CUDA_VISIBLE_DEVICES or LOCAL_RANK wrong?"),
    Pattern(
        r"Message truncated : received",
        "ranks have different versions of NCCL, or different settings",
        "use one image and the same variables in all pods",
    ),
    Pattern(
        r"Failed to initialize any NET plugin",
        "NCCL found no network to use",
        "does the image contain the adapters' libraries, and does NCCL_NET name an existing plugin?",
    ),
    Pattern(
        r"No eligible providers|Failed to open libibverbs",
        "NCCL continues without this network plugin",
        "if it should be used: does the image contain the adapters' libraries?",
        cause=False,
    ),
    Pattern(
        r"[Cc]uda failure.*out of memory",
        "the memory of a GPU is full",
        "use a smaller batch; `nvidia-smi` shows other processes on it, such as leftovers of an earlier job",
    ),
    Pattern(
        r"[Cc]uda failure.*(?:ECC|[Hh]ardware)",
        "a GPU failed",
        "run `nvidia-smi` in the pod, `dmesg | grep -i xid` on its node",
    ),
    Pattern(
        r"[Cc]uda failure",
        "a call to CUDA failed",
        "a bug of the program, or a GPU fault: `nvidia-smi` in the pod, `dmesg | grep -i xid` on its node",
        cause=False,
    ),
    Pattern(
        r"[Cc]onnect\w* .*(?:refused|failed|timed out|[Nn]o route)|socketStartConnect|socketPollConnect",
        "a rank is unreachable by TCP",
        "it may have ended before; else check NetworkPolicies and the interface",
        cause=False,
    ),
    Pattern(
        r"Connection closed|[Cc]onnection reset|Broken pipe|remote process exited|peer .*closed",
        "another rank ended",
        "find the rank that ended first",
        cause=False,
    ),
    Pattern(
        r"Watchdog caught collective",
        "a collective did not finish within PyTorch's timeout",
        "a rank never joined it: see which ranks wait for which",
        cause=False,
    ),
)


@dataclass(frozen=True)
class Line:
    """A log line. `age_s`: seconds since it was written, or a lower bound; None: a running rank may write it now.

    `from_file`: only the time of the file's last line is known.
    """

    text: str
    age_s: float | None = None
    from_file: bool = False


def messages(facts: Facts) -> list[Finding]:
    """Explain warnings in the pods' logs and the ranks' files; those from before the current job are no cause."""
    unread = {name: log.why for name, log in facts.logs.items() if log.why}
    findings = [unknown("NCCL log", f"Pod {name}", f"its log cannot be read: {why}") for name, why in unread.items()]
    limit_s = _max_age(facts)
    for name in facts.pods:
        groups: dict[str, tuple[Pattern | None, list[Line]]] = {}
        for line in _severe(rank_lines(facts, name)):
            known = next((pattern for pattern in PATTERNS if re.search(pattern.pattern, line.text)), None)
            groups.setdefault(known.pattern if known else re.sub(r"\d+", "#", line.text), (known, []))[1].append(line)
        findings += [_finding(facts, f"Pod {name}", known, same, limit_s) for known, same in groups.values()]
    any_log = facts.readable() or facts.answering("nccl_logs")
    return or_ok("NCCL log", facts.env.name, findings) if any_log or findings else []


def rank_lines(facts: Facts, name: str) -> list[Line]:
    """Return all known lines of a pod's ranks, of any age."""
    log, inside = facts.logs.get(name), facts.inside.get(name)
    lines_of_pod = [Line(text, _ago(facts, time)) for time, text in log.timed()] if log else []
    for file in (inside.get("nccl_logs", "files") if inside else None) or ():
        age = None if file["live"] else file["age_s"]
        lines_of_pod += [Line(text, age, from_file=True) for text in file["lines"]]
    return lines_of_pod


def lines(facts: Facts, name: str) -> list[str]:
    """Return the lines that ranks of the current job wrote."""
    limit_s = _max_age(facts)
    return [line.text for line in rank_lines(facts, name) if _is_current(line, limit_s)]


def _ago(facts: Facts, time: float | None) -> float | None:
    return None if time is None or facts.now is None else facts.now - time


def _max_age(facts: Facts) -> float:
    """Return the age beyond which lines belong to an earlier job, with a tolerance for the nodes' clocks."""
    age = job_age(facts)
    return RECENT_S if age is None else age + CLOCKS_S


def _is_current(line: Line, limit_s: float) -> bool:
    return line.age_s is None or line.age_s <= limit_s


def _severe(candidates: Iterable[Line]) -> Iterator[Line]:
    for line in candidates:
        if match := SEVERE.search(line.text):
            yield replace(line, text=(match["text"] or match["torch"]).strip()[:300])


def _finding(facts: Facts, subject: str, known: Pattern | None, same: Sequence[Line], limit_s: float) -> Finding:
    """Report lines of one kind by the last of them, and how often they occur."""
    current = [line for line in same if _is_current(line, limit_s)]
    last = (current or same)[-1]
    times = f" ({len(current or same)} times)" if len(current or same) > 1 else ""
    message = f"{known.meaning}{times}: {last.text}" if known else f"{last.text}{times}"
    message += _when(facts, last)
    if not current:
        old = "before the current job started" if job_age(facts) is not None else "and no job runs now"
        return warn("NCCL log", subject, f"{message}, {old}", "from an earlier job; not the cause of this hang")
    report = fail if known and known.cause else warn
    return report("NCCL log", subject, message, known.hint if known else "gpuctl does not know this message")


def _when(facts: Facts, line: Line) -> str:
    if line.age_s is None or facts.now is None:
        return ""
    written = "in a file that ends" if line.from_file else "written"
    return f"; {written} at {datetime.fromtimestamp(facts.now - line.age_s, UTC):%Y-%m-%d %H:%MZ}"
