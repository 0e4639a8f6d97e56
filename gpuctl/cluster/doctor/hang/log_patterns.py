"""Recent messages of NCCL and PyTorch, with their meaning."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from gpuctl.cluster.doctor.hang.pods import job_age
from gpuctl.cluster.doctor.model import Facts
from gpuctl.domain.findings import Finding, fail, or_ok, unknown, warn

SEVERE = re.compile(r"NCCL (?:WARN|ERROR) (?P<text>.*)|(?P<torch>.*Watchdog caught collective operation timeout.*)")
RETRIES = "12: packets to the peer got no answer"
RECENT_S = 3600.0  # while no job runs: what was said longer ago is no news; this project's own choice
CLOCKS_S = 60.0
LOST = "the adapters do not reach each other: address (GID) index, VLAN, MTU, flow control, cable; try ib_write_bw"


@dataclass(frozen=True)
class Known:
    """A line, what it means, and what to try. `cause`: it says why; else it follows from something."""

    pattern: str
    means: str
    hint: str
    cause: bool = True


# The texts are NCCL's own (src/transport/net_ib.cc, src/misc/{ibvwrap,socket,shmutils}.cc, src/bootstrap.cc); what the
# numbers mean: ibv_wc_status of rdma-core. NVIDIA/nccl#426, #2013, NVIDIA/nccl-tests#185, #206.
KNOWN = (
    Known(
        r"no (?:socket )?interface found",
        "NCCL_SOCKET_IFNAME leaves it no interface",
        "mend network.rdma.interfaces or network.tcp.interface_exclude",
    ),
    Known(r"Got completion .*(?:error |status=)12\b", f"a transfer failed with {RETRIES}", LOST),
    Known(r"Got completion .*(?:error |status=)5\b", "a transfer was thrown away after another failed", LOST, False),
    Known(r"Got completion .*(?:error |status=)\d+", "a transfer between adapters failed", LOST),
    Known(
        r"ibv_reg_mr\w* failed.*[Cc]annot allocate memory",
        "memory for RDMA could not be locked",
        "the limit of locked memory is too low: LimitMEMLOCK of the nodes' container runtime",
    ),
    Known(r"ibv_modify_qp failed.*[Tt]imed out", "two adapters do not reach each other", f"{LOST}; NCCL_CROSS_NIC=0"),
    Known(r"ibv_modify_qp failed", "a connection between adapters could not be made", LOST),
    Known(r"ibv_\w+ failed", "a call to the adapter's driver failed", "`dmesg` of the node, `ibv_devinfo` in the pod"),
    Known(
        r"creating shared memory segment|No space left on device",
        "shared memory is too little",
        "raise resources.shm; remove what jobs of before left in /dev/shm",
    ),
    Known(r"Duplicate GPU detected", "two ranks use the same GPU", "is CUDA_VISIBLE_DEVICES or LOCAL_RANK wrong?"),
    Known(
        r"Message truncated : received",
        "ranks have different versions of NCCL, or different settings",
        "use one image and the same variables in all pods",
    ),
    Known(
        r"Failed to initialize any NET plugin",
        "NCCL found no network to use",
        "are the libraries for the adapters in the image, and does NCCL_NET name one that is there?",
    ),
    Known(
        r"No eligible providers|Failed to open libibverbs",
        "NCCL goes on without this way to the network",
        "where it was to be used: are the libraries for the adapters in the image?",
        False,
    ),
    Known(
        r"[Cc]uda failure.*out of memory",
        "the memory of a GPU is full",
        "a smaller batch; `nvidia-smi` shows what else is on it, a process of before among it",
    ),
    Known(
        r"[Cc]uda failure.*(?:ECC|[Hh]ardware)",
        "a GPU failed",
        "`nvidia-smi` there, `dmesg | grep -i xid` on its node",
    ),
    Known(
        r"[Cc]uda failure",
        "a call to CUDA failed",
        "the program's own fault, or the GPU's: `nvidia-smi` there, `dmesg | grep -i xid` on its node",
        False,
    ),
    Known(
        r"[Cc]onnect\w* .*(?:refused|failed|timed out|[Nn]o route)|socketStartConnect|socketPollConnect",
        "a rank could not be reached by TCP",
        "did it end before? else a NetworkPolicy, or the wrong interface",
        False,
    ),
    Known(
        r"Connection closed|[Cc]onnection reset|Broken pipe|remote process exited|peer .*closed",
        "another rank ended",
        "look for the rank that ended first",
        False,
    ),
    Known(
        r"Watchdog caught collective",
        "a collective did not end in PyTorch's time",
        "some rank never came to it: see who waits for whom",
        False,
    ),
)


@dataclass(frozen=True)
class Line:
    """`age_s`: how long ago it was said, or at least; None: a rank that runs may have said it just now."""

    text: str
    age_s: float | None = None
    kept: bool = False  # in a file: the time is that of the file's end


def nccl(facts: Facts) -> list[Finding]:
    """In the pods' logs, and the files that ranks write to. What was said before the job of now began is no cause."""
    unread = {name: log.why for name, log in facts.logs.items() if log.why}
    found = [unknown("NCCL says", f"Pod {name}", f"its log cannot be read: {why}") for name, why in unread.items()]
    limit_s = _since(facts)
    for name in facts.pods:
        groups: dict[str, tuple[Known | None, list[Line]]] = {}
        for line in _severe(heard(facts, name)):
            known = next((each for each in KNOWN if re.search(each.pattern, line.text)), None)
            groups.setdefault(known.pattern if known else re.sub(r"\d+", "#", line.text), (known, []))[1].append(line)
        found += [_told(facts, f"Pod {name}", known, said, limit_s) for known, said in groups.values()]
    looked = facts.readable() or facts.telling("words")
    return or_ok("NCCL says", facts.env.name, found) if looked or found else []


def heard(facts: Facts, name: str) -> list[Line]:
    """All that is known of what a pod's ranks wrote, whenever that was."""
    log, inside = facts.logs.get(name), facts.inside.get(name)
    found = [Line(text, _ago(facts, time)) for time, text in log.timed()] if log else []
    for file in (inside.get("words", "files") if inside else None) or ():
        age = None if file["live"] else file["age_s"]
        found += [Line(text, age, kept=True) for text in file["lines"]]
    return found


def lines(facts: Facts, name: str) -> list[str]:
    """Lines that the ranks of the current job wrote."""
    limit_s = _since(facts)
    return [each.text for each in heard(facts, name) if _is_new(each, limit_s)]


def _ago(facts: Facts, time: float | None) -> float | None:
    return None if time is None or facts.now is None else facts.now - time


def _since(facts: Facts) -> float:
    """Lines that are older are of another job; clocks of nodes differ a little."""
    age = job_age(facts)
    return RECENT_S if age is None else age + CLOCKS_S


def _is_new(line: Line, limit_s: float) -> bool:
    return line.age_s is None or line.age_s <= limit_s


def _severe(found: Iterable[Line]) -> Iterator[Line]:
    for line in found:
        if match := SEVERE.search(line.text):
            yield replace(line, text=(match["text"] or match["torch"]).strip()[:300])


def _told(facts: Facts, subject: str, known: Known | None, said: Sequence[Line], limit_s: float) -> Finding:
    new = [line for line in said if _is_new(line, limit_s)]
    last = (new or said)[-1]
    times = f" ({len(new or said)} times)" if len(new or said) > 1 else ""
    words = f"{known.means}{times}: {last.text}" if known else f"{last.text}{times}"
    words += _when(facts, last)
    if not new:
        old = "before the job of now began" if job_age(facts) is not None else "and no job runs now"
        return warn("NCCL says", subject, f"{words}, {old}", "from an earlier job; not the cause of this hang")
    say = fail if known and known.cause else warn
    return say("NCCL says", subject, words, known.hint if known else "what it means is not known here")


def _when(facts: Facts, line: Line) -> str:
    if line.age_s is None or facts.now is None:
        return ""
    said = "in a file that ends" if line.kept else "said"
    return f"; {said} at {datetime.fromtimestamp(facts.now - line.age_s, UTC):%Y-%m-%d %H:%MZ}"
