"""Actions for Xids and SXids: NVIDIA's bucket for each, the workflows of some, and the one action for a GPU."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from gpuctl.core.text import named
from gpuctl.domain.findings import SEVERITY, Finding, Verdict
from gpuctl.domain.gpu_errors import Catalogue
from gpuctl.domain.nvlink5 import decode
from gpuctl.domain.xid_lines import RECOVERY_CHANGED, KernelLog, SxidEvent, XidEvent

SUPPORT = "contact NVIDIA support with the output of nvidia-bug-report.sh"
PAGE = "https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html"


@dataclass(frozen=True)
class Action:
    """An action. `verdict`: state of a GPU that needs it; `text`: the action in plain words, "" for none."""

    name: str
    verdict: Verdict
    text: str = ""


# The first one wins if events of a GPU need several: the driver's order, then by how much it interrupts.
ACTIONS = {
    action.name: action
    for action in (
        Action("reboot", Verdict.FAIL, f"drain the node and reboot it; if the error returns, {SUPPORT}"),
        Action("restart VM", Verdict.FAIL, "drain the node and restart the virtual machine"),
        Action("reset", Verdict.FAIL, "drain the GPU and reset it (nvidia-smi --gpu-reset -i GPU), or reboot the node"),
        Action("drain and reset", Verdict.FAIL, "let the GPU's work end, then reset it (nvidia-smi --gpu-reset)"),
        Action("drain P2P", Verdict.FAIL, "end the work that uses peer-to-peer access to this GPU"),
        Action("recover IMEX", Verdict.FAIL, "recover the IMEX domain: restart nvidia-imex on all nodes of the domain"),
        Action("contact support", Verdict.FAIL, SUPPORT),
        Action("check mechanics", Verdict.FAIL, "check the power connectors, the seat of the GPU and the power supply"),
        Action("update", Verdict.WARN, "update the driver and the firmware to versions that match"),
        Action("restart fabric manager", Verdict.WARN, "restart nvidia-fabricmanager, then the jobs of this node"),
        Action("check UVM", Verdict.WARN, "look for errors of unified memory (UVM) in the log, then restart the job"),
        Action("restart job", Verdict.WARN, "restart the job; if other jobs fail on this GPU too, drain it"),
        Action("none", Verdict.OK),
    )
}
NONE = ACTIONS["none"]
# Buckets of NVIDIA's page -> action; those of workflows: the action if nothing else is known.
BUCKETS = {
    bucket: ACTIONS[name]
    for bucket, name in {
        "RESTART_BM": "reboot",
        "RESTART_VM": "restart VM",
        "RESET_GPU": "reset",
        "WORKFLOW_XID_48": "reset",
        "WORKFLOW_NVLINK_ERR": "reset",
        "WORKFLOW_NVLINK5_ERR": "contact support",
        "CONTACT_SUPPORT": "contact support",
        "CHECK_MECHANICALS": "check mechanics",
        "UPDATE_SWFW": "update",
        "WORKFLOW_XID_45": "restart fabric manager",
        "CHECK_UVM": "check UVM",
        "RESTART_APP": "restart job",
        "XID_154": "none",
        "XID_154_EVAL": "none",
        "IGNORE": "none",
    }.items()
}
# Recovery actions of Xid 154, by their number; the texts beside it change between drivers.
RECOVERIES = {
    number: ACTIONS[name]
    for number, name in enumerate(("none", "reset", "reboot", "drain P2P", "drain and reset", "recover IMEX"))
}
WORKFLOWS = {
    "WORKFLOW_XID_45": "alone: restart nvidia-fabricmanager; after another Xid of the GPU: follow that one",
    "WORKFLOW_XID_48": "reset the GPU, then read its row remaps and its SRAM threshold "
    "(nvidia-smi -q -d ECC,ROW_REMAPPER); a failed remap or an exceeded threshold: field diagnostic, replacement",
    "WORKFLOW_NVLINK_ERR": "reset the GPU; compare with the Xids of the GPU or switch at the other end, check the link",
    "WORKFLOW_NVLINK5_ERR": "the registers in the line decide; `gpuctl` decodes them by the version of the driver",
    "XID_154": "none, reset, reboot, drain P2P, drain and reset, or recover IMEX: the second number in the line",
}
_REPAIR = "read the row remaps (nvidia-smi -q -d ROW_REMAPPER): a pending one needs a reset of the GPU"
_CURED_BY_REBOOT = ("reboot", "restart VM", "reset", "drain and reset", "drain P2P", "recover IMEX")
_REBOOTED = "the node was rebooted since; read the row remaps (nvidia-smi -q -d ROW_REMAPPER), and watch for the error"


@dataclass(frozen=True)
class Judgement:
    """Action for one event. `note`: what decided it, if that is more than the code. `code`: the Xid it is judged as."""

    code: int
    action: Action
    verdict: Verdict
    note: str = ""
    hint: str = ""


# ---- one event -------------------------------------------------------------------------------------------------------


def judge_event(event: XidEvent, others: Sequence[XidEvent], catalogue: Catalogue) -> Judgement:
    """Action for an event; `others`: all events of the same GPU and boot."""
    special = _SPECIAL.get(event.code, _by_bucket)
    return special(event, others, catalogue)


def _by_bucket(event: XidEvent, _others: Sequence[XidEvent], catalogue: Catalogue) -> Judgement:
    row = catalogue.xids.get(event.code)
    if row is None:
        return _unknown(event.code, "this code is in no catalogue")
    bucket = row.immediate or row.assumed
    if bucket is None:
        return _unknown(event.code, "NVIDIA publishes no action for it")
    judgement = _of_bucket(event.code, bucket, row.investigatory)
    return replace(judgement, note="assumed by gpuctl: NVIDIA publishes no action") if row.assumed else judgement


def _unknown(code: int, note: str) -> Judgement:
    return Judgement(code, ACTIONS["contact support"], Verdict.UNKNOWN, note, SUPPORT)


def _of_bucket(code: int, bucket: str, investigatory: str | None) -> Judgement:
    action = BUCKETS[bucket]
    # Nothing to do now, but something to investigate: worth a look.
    watch = action is NONE and (investigatory or "").partition(" ")[0] not in ("", "IGNORE")
    hint = WORKFLOWS.get(bucket) or action.text or (f"watch whether it returns; {SUPPORT} if it does" if watch else "")
    return Judgement(code, action, Verdict.WARN if watch else action.verdict, "", hint)


def _clean_up(event: XidEvent, others: Sequence[XidEvent], catalogue: Catalogue) -> Judgement:
    """Xid 45: stands for the error it follows; alone, the fabric manager is restarted."""
    if event.caused_by is not None and event.caused_by != event.code:
        cause = replace(event, code=event.caused_by, caused_by=None)
        judgement = judge_event(cause, others, catalogue)
        return replace(judgement, note="; ".join(filter(None, ("reported by Xid 45", judgement.note))))
    if any(other.code != event.code for other in others):
        return Judgement(event.code, NONE, Verdict.OK, "follows another Xid of this GPU")
    action = BUCKETS["WORKFLOW_XID_45"]
    return Judgement(event.code, action, action.verdict, "no other Xid of this GPU", action.text)


def _contained(event: XidEvent, others: Sequence[XidEvent], catalogue: Catalogue) -> Judgement:
    """Xid 94 and 95: the line states whether a reset is needed now, which is at least done."""
    judgement = _by_bucket(event, others, catalogue)
    if event.reset_needed:
        action = ACTIONS["reset"]
    elif event.drain_reset_needed and judgement.action is not ACTIONS["reset"]:
        action = ACTIONS["drain and reset"]
    else:
        return judgement
    return Judgement(event.code, action, action.verdict, "the driver needs it now", action.text)


def _marked_for_repair(event: XidEvent, others: Sequence[XidEvent], catalogue: Catalogue) -> Judgement:
    """Xid 63 and 160: NVIDIA's page needs nothing, but the repair is not done before the next reset."""
    judgement = _by_bucket(event, others, catalogue)
    return replace(judgement, verdict=Verdict.WARN, hint=_REPAIR)


def _recovery(event: XidEvent, _others: Sequence[XidEvent], _catalogue: Catalogue) -> Judgement:
    """Xid 154: the action that the driver asks for, by its number."""
    if event.recovery is None:
        return Judgement(
            event.code, NONE, Verdict.UNKNOWN, "the line is cut", "read nvidia-smi -q: GPU Recovery Action"
        )
    action = RECOVERIES.get(event.recovery)
    if action is None:
        return _unknown(event.code, f"recovery action {event.recovery:#x} is not known")
    note = f"the driver asks for: {action.name}" if action is not NONE else "the driver asks for nothing any more"
    return Judgement(event.code, action, action.verdict, note, action.text)


def _nvlink5(event: XidEvent, others: Sequence[XidEvent], catalogue: Catalogue) -> Judgement:
    """Xid 144 to 150: the worst of the rules for its registers."""
    if event.nvlink is None:
        return _unknown(event.code, "the registers of the line cannot be read")
    fatal = "fatal" in event.nvlink.severity.lower() and not event.nvlink.severity.lower().startswith("non")
    decoded = decode(event.code, event.nvlink.registers, event.driver, catalogue.nvlink_rules)
    judgements = []
    for rule in decoded.rules:
        bucket = rule.if_fatal if fatal and rule.if_fatal else rule.immediate
        by_154 = bucket == "XID_154_EVAL" and not any(other.code == RECOVERY_CHANGED for other in others)
        judgement = _of_bucket(event.code, bucket, rule.investigatory)
        note = f"{rule.unit}, {rule.errorstatus:#x}: {rule.severity}; to investigate: {rule.investigatory}"
        if by_154:
            judgement = replace(judgement, verdict=Verdict.WARN)
            note += "; Xid 154 decides, and the log has none"
        judgements.append(replace(judgement, note=note))
    if not decoded.rules or decoded.unknown_bits:
        unknown = _unknown(event.code, f"no rule for errorstatus bits {decoded.unknown_bits:#x} of {event.nvlink.unit}")
        judgements.append(replace(unknown, verdict=Verdict.FAIL) if fatal else unknown)
    judgement = min(judgements, key=_rank)
    if event.driver is None:
        judgement = replace(judgement, note=f"{judgement.note}; driver version unknown, both encodings tried")
    return judgement


Judge = Callable[[XidEvent, Sequence[XidEvent], Catalogue], Judgement]
_SPECIAL: Mapping[int, Judge] = {
    45: _clean_up,
    **dict.fromkeys((63, 160), _marked_for_repair),
    94: _contained,
    95: _contained,
    RECOVERY_CHANGED: _recovery,
    **dict.fromkeys(range(144, 151), _nvlink5),
}
_ORDER = list(ACTIONS)


def _rank(judgement: Judgement) -> tuple[int, int]:
    """Key for the worst judgement first: by verdict, then by action."""
    return -SEVERITY.index(judgement.verdict), _ORDER.index(judgement.action.name)


# ---- one GPU, one switch, one log ------------------------------------------------------------------------------------


def findings(log: KernelLog, catalogue: Catalogue, host: str = "") -> list[Finding]:
    """One finding for each GPU and switch with events, and one for lines that cannot be read; [] without any.

    `host`: name for lines that have none.
    """
    gpus: dict[tuple[str, str], list[XidEvent]] = {}
    for event in log.xids:
        gpus.setdefault((event.host, event.gpu), []).append(event)
    switches: dict[tuple[str, int, str], list[SxidEvent]] = {}
    for switch_event in log.sxids:
        place = (switch_event.host, switch_event.switch, switch_event.address)
        switches.setdefault(place, []).append(switch_event)
    judged = [
        judge_gpu(_subject(at or host, f"GPU {gpu or 'unknown'}"), events, catalogue, log.last_boots.get(at, 0))
        for (at, gpu), events in gpus.items()
    ]
    judged += [
        judge_switch(_subject(at or host, f"NVSwitch {number}"), events, catalogue, log.last_boots.get(at, 0))
        for (at, number, _), events in switches.items()
    ]
    if log.unreadable:
        message = f"lines about errors cannot be read, such as: {log.unreadable[0][:120]}"
        hint = "read the whole kernel log: a line is cut, or its first line is missing"
        numbers = {"unreadable_lines": len(log.unreadable)}
        judged.append(Finding("xid", host, Verdict.UNKNOWN, message, numbers, hint))
    return judged


def judge_gpu(subject: str, events: Sequence[XidEvent], catalogue: Catalogue, last_boot: int = 0) -> Finding:
    """The finding for the events of one GPU: its hint is the one action that they need together."""
    judged = []
    for event in in_force(events):
        peers = [other for other in events if other.boot == event.boot]
        judgement = judge_event(event, peers, catalogue)
        judged.append((event, _rebooted(judgement) if event.boot < last_boot else judgement))
    event, worst = min(judged, key=lambda pair: _rank(pair[1]))
    # A verdict may come from an unknown code while the driver asks for more than support.
    action = min((j.action for _, j in judged), key=lambda action: _ORDER.index(action.name))
    hint = worst.hint if worst.action is action or not action.text else f"{action.text}; {worst.hint}"
    row = catalogue.xids.get(worst.code)
    message = f"Xid {worst.code}{_process(event)}: {row.meaning if row else event.text or 'no text'}"
    message += f" [{worst.note}]" if worst.note else ""
    others = sorted({other.code for other in events} - {worst.code, event.code})
    message += f" Also Xid {named(map(str, others))}." if others else ""
    numbers = {f"xid_{code}_events": sum(e.code == code for e in events) for code in sorted({e.code for e in events})}
    last = events[-1].moment
    return Finding(
        "xid",
        subject,
        worst.verdict,
        message,
        {**numbers, "lines": sum(e.lines for e in events), **({"last_time": last.text} if last else {})},
        hint,
        row.source if row else PAGE,
    )


def in_force(events: Sequence[XidEvent]) -> list[XidEvent]:
    """Events without those that a later one replaces: of the recovery actions of a boot, only the last counts."""
    last = {event.boot: number for number, event in enumerate(events) if event.recovery is not None}
    return [e for number, e in enumerate(events) if e.code != RECOVERY_CHANGED or number >= last.get(e.boot, 0)]


def _rebooted(judgement: Judgement) -> Judgement:
    """Judgement of an event from before the last reboot, which did what the event needed."""
    if judgement.action.name not in _CURED_BY_REBOOT:
        return judgement
    return Judgement(judgement.code, NONE, Verdict.WARN, "before the last reboot", _REBOOTED)


def _process(event: XidEvent) -> str:
    instance = f" on GPU instance {event.gpu_instance}" if event.gpu_instance is not None else ""
    names = [event.process or "", f"pid {event.pid}" if event.pid is not None else ""]
    process = ", ".join(filter(None, names))
    return f"{instance} ({process})" if process else instance


def _subject(host: str, part: str) -> str:
    return f"{host} {part}" if host else part


# ---- switches --------------------------------------------------------------------------------------------------------

# Class of an SXid -> verdict and action. A line that states Fatal is never less than fatal.
SXID_CLASSES: Mapping[str, tuple[Verdict, str]] = {
    "always_fatal": (Verdict.FAIL, "drain the node and reboot it: the whole NVLink fabric has to be reset"),
    "fatal": (
        Verdict.FAIL,
        "drain the node, reset its GPUs and NVSwitches together or reboot it, then inspect the link",
    ),
    "maybe": (Verdict.WARN, "watch whether it returns, and the temperature of the switch"),
    "warning": (Verdict.WARN, "nothing now; watch whether it returns often"),
    "ignore": (Verdict.OK, ""),
    "unlisted": (Verdict.UNKNOWN, SUPPORT),
}


def judge_switch(subject: str, events: Sequence[SxidEvent], catalogue: Catalogue, last_boot: int = 0) -> Finding:
    """The finding for the events of one NVSwitch."""
    judged = []
    for event in events:
        verdict, hint = judge_sxid(event, catalogue)
        if verdict is Verdict.FAIL and event.boot < last_boot:
            verdict, hint = Verdict.WARN, "the node was rebooted since; watch for the error"
        judged.append((event, verdict, hint))
    event, verdict, hint = max(judged, key=lambda item: SEVERITY.index(item[1]))
    codes = sorted({e.code for e in events})
    row = catalogue.sxids.get(event.code)
    links = sorted({e.link for e in events if e.code == event.code and e.link is not None})
    message = f"SXid {event.code}{f' on link {named(map(str, links))}' if links else ''}: "
    message += row.meaning if row else f"{event.text or 'no text'} [this code is in no catalogue]"
    others = [code for code in codes if code != event.code]
    message += f" Also SXid {named(map(str, others))}." if others else ""
    numbers = {f"sxid_{code}_events": sum(e.code == code for e in events) for code in codes}
    return Finding("sxid", subject, verdict, message, numbers, hint, row.source if row else "")


def judge_sxid(event: SxidEvent, catalogue: Catalogue) -> tuple[Verdict, str]:
    """Verdict and action of an SXid: its class, or the line's own word if that is worse."""
    row = catalogue.sxids.get(event.code)
    verdict, hint = SXID_CLASSES[row.severity if row else "unlisted"]
    if event.fatal and verdict is not Verdict.FAIL:
        return SXID_CLASSES["fatal"]
    return verdict, hint
