"""How findings of the doctor are written: short ways to each verdict, and pods that tell the same told once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

from gpuctl.cluster.deploy.model import Finding
from gpuctl.core.text import named
from gpuctl.domain.findings import Verdict

Say = Callable[[str, str, str, str], Finding]


def fail(check: str, subject: str, words: str, hint: str = "") -> Finding:
    return Finding(check, subject, Verdict.FAIL, words, hint)


def warn(check: str, subject: str, words: str, hint: str = "") -> Finding:
    return Finding(check, subject, Verdict.WARN, words, hint)


def unknown(check: str, subject: str, words: str, hint: str = "") -> Finding:
    return Finding(check, subject, Verdict.UNKNOWN, words, hint)


def or_ok(check: str, subject: str, found: Sequence[Finding], words: str = "") -> list[Finding]:
    """What was found, or that all is well."""
    return list(found) or [Finding(check, subject, Verdict.OK, words)]


def grouped(found: Iterable[Finding]) -> list[Finding]:
    """Findings that differ in their pod alone, as one."""
    groups: dict[tuple[str, str, str, str], list[str]] = {}
    for each in found:
        groups.setdefault((each.check, each.verdict, each.words, each.hint), []).append(each.subject)
    return [
        Finding(check, _subjects(subjects), Verdict(verdict), words, hint)
        for (check, verdict, words, hint), subjects in groups.items()
    ]


def _subjects(subjects: Sequence[str]) -> str:
    once = list(dict.fromkeys(subjects))
    kinds = {each.partition(" ")[0] for each in once}
    if len(once) == 1 or len(kinds) > 1 or not all(" " in each for each in once):
        return named(once)
    return f"{kinds.pop()}s {named(each.partition(' ')[2] for each in once)}"


def odd(check: str, values: Mapping[str, object], what: str, hint: str = "", say: Say = fail) -> list[Finding]:
    """Pods whose value is not that of most. `what` has a place for it; where there is no most, both are named."""
    counts = Counter(map(str, values.values()))
    if len(counts) < 2:
        return []
    (usual, most), (_, second) = counts.most_common(2)
    if most == second:
        sides = [f"{what.format(value)} in {named(_with(values, value))}" for value in counts]
        return [say(check, named(f"Pod {name}" for name in values), "; ".join(sides), hint)]
    words = "{}, " + f"most pods have {what.format(usual)}"
    return [
        say(check, f"Pod {name}", words.format(what.format(value)), hint)
        for name, value in values.items()
        if str(value) != usual
    ]


def _with(values: Mapping[str, object], wanted: str) -> list[str]:
    return [name for name, value in values.items() if str(value) == wanted]
