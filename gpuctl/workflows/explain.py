"""Explain a name: an error number, a reason for low clocks, a check, a kernel fault, a setting, or an exit code."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches

from gpuctl import engine
from gpuctl.audit import knowledge
from gpuctl.audit.rules import diagnostics
from gpuctl.core.errors import InvalidInput
from gpuctl.core.exit_codes import MEANINGS
from gpuctl.domain import kernel_faults
from gpuctl.domain.entries import Entry
from gpuctl.domain.findings import Verdict
from gpuctl.domain.gpu_errors import DcgmError, SXid, ThrottleBit, Xid
from gpuctl.domain.xid_actions import BUCKETS, SUPPORT, SXID_CLASSES, WORKFLOWS

EXAMPLES = "`gpuctl explain xid 79`, `sxid 20034`, `hw_thermal_slowdown`, `dcgm 118`, `check gpu-count`, `exit 3`"
# What DCGM's error_severity asks for.
DCGM_ACTIONS = {
    "MONITOR": "watch it; nothing now",
    "ISOLATE": "drain the node and examine the GPU",
    "TRIAGE": "find the cause before the GPU is used again",
    "CONFIG": "correct the setting; the GPU is not at fault",
    "RESET": "drain the GPU and reset it (nvidia-smi --gpu-reset), or reboot the node",
    "UNKNOWN": "",
}


@dataclass(frozen=True)
class Explanation:
    """Explanation of one name. `read_back`: how to see it; `details`: facts that only this kind has."""

    kind: str
    name: str
    title: str
    meaning: str
    action: str = ""
    read_back: str = ""
    source: str = ""
    details: Mapping[str, str] = field(default_factory=dict, hash=False)


def explain(name: str) -> list[Explanation]:
    """Explanations of a name, with or without its kind in front; several if several kinds have it.

    Raises InvalidInput with the closest name if nothing has it.
    """
    kind, rest = _kind(name)
    kinds = [kind] if kind else [kind for kind in KINDS if kind != "exit"]
    explanations = [one for kind in kinds for one in KINDS[kind](rest)]
    if not explanations:
        raise InvalidInput(f"explain {name!r}", _unknown(kind, rest), _closest(kind, rest))
    return explanations


def names(kind: str = "") -> list[str]:
    """Names that can be explained after `kind`, such as the codes of xid; without one, kinds and names of their own."""
    numbers: dict[str, Callable[[], Iterable[int]]] = {
        "xid": knowledge.xids,
        "sxid": knowledge.sxids,
        "dcgm": knowledge.dcgm_errors,
        "exit": lambda: [*MEANINGS, *diagnostics.EXIT_CODES],
    }
    if kind in numbers:
        return [str(number) for number in numbers[kind]()]
    named: dict[str, Callable[[], list[str]]] = {
        "throttle": lambda: [bit.name for bit in knowledge.throttle_bits()],
        "knob": _knob_names,
        "check": lambda: list(dict.fromkeys(row.name for row in knowledge.checks())),
        "kernel": lambda: [fault.name for fault in kernel_faults.FAULTS],
        "setting": lambda: [row.name for row in knowledge.settings()],
    }
    return named[kind]() if kind in named else [*KINDS, *(name for names in named.values() for name in names())]


def _kind(name: str) -> tuple[str, str]:
    """("xid", "79") of "xid 79", "Xid:79" and "XID79"; ("", name) of a name without a kind."""
    text = " ".join(name.split())
    for word, kind in KIND_OF_WORD.items():
        match = re.fullmatch(rf"{word}(?:[ :=]+(.+)|(\d+))", text, re.IGNORECASE | re.ASCII)
        if match:
            return kind, (match[1] or match[2]).strip()
    return "", text


# ---- Xids and SXids --------------------------------------------------------------------------------------------------


def _xids(name: str) -> list[Explanation]:
    number = _number(name)
    rows = knowledge.xids().values()
    return [_xid(row) for row in rows if row.code == number or name.upper() in row.name.split(" / ")]


def _xid(row: Xid) -> Explanation:
    bucket = row.immediate or row.assumed
    action = (WORKFLOWS.get(bucket) or BUCKETS[bucket].text or "nothing now") if bucket else SUPPORT
    details = {"immediate": row.immediate or "not published", "investigatory": row.investigatory or "not published"}
    if row.assumed:
        details["assumed"] = f"{row.assumed}: gpuctl's choice, NVIDIA publishes no action"
    read_back = f'journalctl -k | grep "Xid.*: {row.code},"'
    return Explanation("xid", f"Xid {row.code}", row.name, row.meaning, action, read_back, row.source, details)


def _sxids(name: str) -> list[Explanation]:
    code = _number(name)
    return [_sxid(row) for row in knowledge.sxids().values() if row.code == code or name.upper() == row.name]


def _sxid(row: SXid) -> Explanation:
    _, action = SXID_CLASSES[row.severity]
    read_back = f'journalctl -k | grep "SXid.*: {row.code},"'
    details = {"class": row.severity}
    return Explanation(
        "sxid", f"SXid {row.code}", row.name, row.meaning, action or "nothing", read_back, row.source, details
    )


DCGM_CODES = "DCGM, dcgm_structs.h: the return value modulo 256"
_SIGNALS = {one.value: one.name for one in signal.Signals if one.value < signal.SIGRTMIN}


# ---- clocks, DCGM, exit codes, knobs ---------------------------------------------------------------------------------


def _throttle_bits(name: str) -> list[Explanation]:
    """Bits by name or label, or every bit of a hexadecimal mask such as 0x44."""
    bits = knowledge.throttle_bits()
    if match := re.fullmatch(r"0x([0-9a-f]{1,16})", name, re.IGNORECASE | re.ASCII):
        mask = int(match[1], 16)
        unknown = mask & ~sum(bit.bit for bit in bits)
        explanations = [_throttle_bit(bit) for bit in bits if bit.bit & mask]
        return explanations + _unknown_bits(unknown) if explanations else []
    plain = _letters(re.sub(r"^.*clocks_(?:event|throttle)_reasons?[._]", "", name, flags=re.IGNORECASE))
    return [_throttle_bit(bit) for bit in bits if plain in (_letters(bit.name), _letters(bit.label))]


def _unknown_bits(mask: int) -> list[Explanation]:
    meaning = "gpuctl does not know these bits; a newer driver may have added them."
    return [Explanation("throttle", f"{mask:#x}", "unknown bits", meaning)] if mask else []


def _throttle_bit(bit: ThrottleBit) -> Explanation:
    action = bit.hint or ("nothing: this is normal" if bit.verdict is Verdict.OK else "")
    read_back = f"nvidia-smi --query-gpu=clocks_event_reasons.{bit.name} --format=csv"
    details = {"bit": f"{bit.bit:#x}", "verdict": str(bit.verdict)}
    return Explanation("throttle", bit.name, bit.label, bit.meaning, action, read_back, bit.source, details)


def _dcgm_errors(name: str) -> list[Explanation]:
    plain, number = name.upper().removeprefix("DCGM_FR_"), _number(name)
    return [_dcgm_error(row) for row in knowledge.dcgm_errors().values() if row.id == number or plain == row.name]


def _dcgm_error(row: DcgmError) -> Explanation:
    details = {"severity": row.severity, "category": row.category}
    action, read_back = DCGM_ACTIONS[row.severity], "dcgmi diag -r 1 -j (error_id)"
    return Explanation("dcgm", f"DCGM error {row.id}", row.name, row.meaning, action, read_back, row.source, details)


def _exit_codes(name: str) -> list[Explanation]:
    """Exit codes of gpuctl, of `dcgmi diag`, and of programs that a signal ended."""
    code, made = _number(name), []
    if code is None:
        return []
    if code in MEANINGS:
        meaning, action = MEANINGS[code]
        made.append(Explanation("exit", f"exit code {code}", "gpuctl", meaning, action, "echo $?", "README.md"))
    if code in diagnostics.EXIT_CODES:
        meaning, action = (
            f"{diagnostics.EXIT_CODES[code]}.",
            "read its JSON, which names test and GPU: gpuctl audit --from",
        )
        made.append(Explanation("exit", f"exit code {code}", "dcgmi diag", meaning, action, "echo $?", DCGM_CODES))
    if code - 128 in _SIGNALS:
        sent = _SIGNALS[code - 128]
        meaning = f"{sent} ended the program, if a shell, a container or srun reports the code."
        action = "look for its sender: the kernel (out of memory), a scheduler, a time limit, or a user"
        made.append(Explanation("exit", f"exit code {code}", sent, meaning, action, "echo $?", "signal(7)"))
    return made


def _knobs(name: str) -> list[Explanation]:
    if not re.search(r"[a-z]", name, re.IGNORECASE):
        return []
    try:
        rows = engine.profiles.explain(name)
    except engine.profiles.ProfileError as error:
        wrong = "\n  ".join(map(str, error.mistakes))
        raise InvalidInput(f"explain {name!r}", wrong, "correct that profile first") from error
    return [_knob(name, one) for one in rows]


def _knob(name: str, knob: engine.profiles.Explained) -> Explanation:
    place = f"{knob.profile} ({knob.overlay})" if knob.overlay else knob.profile
    details = {"profile": place, "value": str(knob.row.written), "not for": str(knob.row.not_for or "-")}
    return Explanation(
        "knob", name, place, knob.row.why, f"`gpuctl tune-nodes --profile {knob.profile}` sets it",
        str(knob.row.read_back or ""), knob.row.source, details,
    )  # fmt: skip


def _knob_names() -> list[str]:
    try:
        rows = [engine.profiles.load(str(file.path)).rows for file in engine.profiles.names()]
    except engine.profiles.ProfileError:  # reported where the knob itself is explained
        return []
    return sorted({name for names in rows for name in names})


# ---- checks, kernel faults, settings ---------------------------------------------------------------------------------


def _checks(name: str) -> list[Explanation]:
    """Checks by name, in every family that has it, or with the family in front: "audit gpu-count"."""
    rows = knowledge.checks()
    named = [row for row in rows if _joined(name) in (_joined(row.name), _joined(row.key))]
    return [
        Explanation("check", row.name, _command(row), row.meaning, row.action, row.read_back, row.source)
        for row in named
    ]


def _joined(text: str) -> str:
    return re.sub(r"[ _/-]+", "-", text.lower())


def _command(row: Entry) -> str:
    """Command whose findings have the check."""
    prefixes = {"doctor": "cluster", "preflight": "nccl", "judge": "nccl"}
    prefix = prefixes.get(row.family.partition(" ")[0])
    return f"gpuctl {prefix} {row.family}" if prefix else f"gpuctl {row.family}"


def _kernel_faults(name: str) -> list[Explanation]:
    rows = [fault for fault in kernel_faults.FAULTS if fault.name == name.lower()]
    read_back = "journalctl -k"
    return [
        Explanation(
            "kernel", row.name, "kernel messages", f"{row.meaning[:1].upper()}{row.meaning[1:]}.", row.hint, read_back,
            row.source, {"verdict": str(row.verdict), "check": row.check},
        )
        for row in rows
    ]  # fmt: skip


def _settings(name: str) -> list[Explanation]:
    titles = {"gpuctl": "key of settings.yml", "nccl": "environment variable of NCCL or libfabric"}
    return [
        Explanation("setting", row.name, titles[row.family], row.meaning, row.action, row.read_back, row.source)
        for row in knowledge.settings()
        if row.name.lower() == name.lower()
    ]


KINDS: Mapping[str, Callable[[str], list[Explanation]]] = {
    "xid": _xids,
    "sxid": _sxids,
    "throttle": _throttle_bits,
    "dcgm": _dcgm_errors,
    "exit": _exit_codes,
    "knob": _knobs,
    "check": _checks,
    "kernel": _kernel_faults,
    "setting": _settings,
}
# Kinds whose names are numbers -> what a message calls them.
TITLES = {"xid": "Xid", "sxid": "SXid", "dcgm": "DCGM error", "exit": "exit code"}
# Words in front of a name -> kind; the longer ones first.
KIND_OF_WORD = {
    "exit[ -]code": "exit",
    "throttle[ -]reason": "throttle",
    "clock(?:s|[ -]event)": "throttle",
    "dcgm[ -]error": "dcgm",
    "variable": "setting",
    **{kind: kind for kind in KINDS},
}


# ---- unknown names ---------------------------------------------------------------------------------------------------


def _unknown(kind: str, name: str) -> str:
    if not kind:
        return "unknown name"
    if kind in ("xid", "sxid") and _number(name) is not None:
        return f"{TITLES[kind]} {_number(name)} is in no catalogue"
    return f"unknown {TITLES.get(kind, kind)}"


def _closest(kind: str, name: str) -> str:
    if kind in ("xid", "sxid") and _number(name) is not None:
        return f"if a kernel log has it, {SUPPORT}"
    spellings = {spelling.lower(): spelling for spelling in _spellings(kind)}
    close = get_close_matches(name.lower(), spellings, 1)
    return f"did you mean {spellings[close[0]]}?" if close else f"names look like these: {EXAMPLES}"


def _spellings(kind: str) -> Iterable[str]:
    """Names of a kind, without a kind those of all."""
    written = {
        "xid": [row.name for row in knowledge.xids().values()],
        "sxid": [row.name for row in knowledge.sxids().values()],
        "dcgm": [row.name for row in knowledge.dcgm_errors().values()],
    }
    for one in [kind] if kind else KINDS:
        yield from (f"{one} {name}" if one in TITLES and not kind else name for name in names(one))
        yield from written.get(one, [])


def _number(text: str) -> int | None:
    return int(text) if re.fullmatch(r"[0-9]{1,9}", text) else None


def _letters(text: str) -> str:
    return re.sub(r"[^a-z]", "", text.lower())
