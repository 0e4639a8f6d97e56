"""Damage recorded outputs at random: no reader may raise, and none may take a damaged output for a healthy one.

By hand: `nice -n 19 python -m tests.rig.fuzz_outputs 100000`; a second number is the first seed.
"""

from __future__ import annotations

import re
import sys
import time
from collections import Counter
from dataclasses import dataclass
from random import Random

from gpuctl.audit import knowledge, merge
from gpuctl.audit.formats import FORMATS, recognise
from gpuctl.domain.findings import Finding, Verdict, overall
from gpuctl.workflows import audit_rules
from tests.rig.recordings import recording

# Recordings of each format, with True if a part that is missing can be noticed.
HEALTHY = {
    "nvidia-smi/q_rtx4090_8g_535154.txt": True,
    "nvidia-smi/x_rtx-4090-driver-535.xml": True,
    "nvidia-smi/topo_h100_8g_nv18_narrowcols.txt": True,
    "nvidia-smi/topo_moc_h100_4g_12nic_ansi.txt": True,
    "nvidia-smi/nvlink_status_a100_8g.txt": False,
    "host/dcgmi_gcm_diag_pass_output.json": True,
    "host/dcgmi_diag_r2_p4de.txt": True,
    "host/dcgmi_nvlink_errors_h800.json.txt": True,
    "host/dcgmi_nvlink_errors_h800_table.txt": True,
    "host/dcgmi_discovery_l_h800.txt": False,
    "host/gpud_ibstat.47.0.a100.all.active.0.txt": False,
    "host/lfs_getstripe_plain.txt": False,
}
# A fault of each has to be noticed whatever happens to the other lines.
SICK = (
    "nvidia-smi/q_a10_1g_535.txt",
    "nvidia-smi/q_h100_8g_535161.txt",
    "nvidia-smi/azure_nvsmi8_bad.txt",
    "nvidia-smi/x_a100-sxm4-mig.xml",
    "nvidia-smi/h100_mig590_querygpu_all_load.csv",
    "nvidia-smi/l40s595_querygpu_all_load.csv",
    "nvidia-smi/table_rtx_ERR_fan_525.txt",
    "host/dcgmi_diag_r1_v4_gb10_fail.json",
    "host/dcgmi_gcm_diag_warn_output.json",
    "host/dcgmi_diag_fail_deepops.txt",
    "host/lfs_df_unbalanced.txt",
)
ERRORS = ("[Unknown Error]", "ERR!", "[GPU requires reset]", "GPU is lost", "[GPU is lost]", "Unknown Error")
# Outputs in which an error stands for a value of a GPU; without it, none is worse than WARN.
VALUES = ("nvidia-smi/l40s595_q_load.txt", "nvidia-smi/x_rtx-4090-driver-535.xml")


@dataclass(frozen=True)
class Judgement:
    """Verdict of a text, and the facts it was made of; `facts` is None if the text was refused."""

    verdict: Verdict
    facts: object


def judge(text: str) -> Judgement:
    """Judge a text as a file of it is judged, without the rules on kernel logs."""
    known = recognise(text[: 16 << 10])
    if known is None:
        return Judgement(Verdict.UNKNOWN, None)
    try:
        record = known.read(text)
    except ValueError:
        return Judgement(Verdict.UNKNOWN, None)
    facts, findings, _ = merge.merged({"output": record})
    judged: list[Finding] = audit_rules.judge_outputs({"output": facts}, knowledge.dcgm_errors()) if facts else []
    return Judgement(overall([*findings, *judged]), record.facts)


def cut(random: Random, text: str) -> str:
    at = random.randrange(len(text))
    return text[:at] if random.random() < 0.7 else text[at:]


def reorder(random: Random, text: str) -> str:
    lines = text.splitlines(keepends=True)
    for _ in range(random.randint(1, 4)):
        first, second = random.randrange(len(lines)), random.randrange(len(lines))
        lines[first], lines[second] = lines[second], lines[first]
    return "".join(lines)


def drop(random: Random, text: str) -> str:
    lines = text.splitlines(keepends=True)
    at = random.randrange(len(lines))
    return "".join(lines[:at] + lines[at + random.randint(1, 5) :])


def glue(random: Random, text: str) -> str:
    other = recording(random.choice([*HEALTHY, *SICK])).read_text(errors="replace")
    return random.choice([text + other, other + text, text[: random.randrange(len(text))] + other])


def scribble(random: Random, text: str) -> str:
    at = random.randrange(len(text))
    return text[:at] + "".join(chr(random.randint(1, 0x2FF)) for _ in range(random.randint(1, 9))) + text[at + 3 :]


DAMAGE = (cut, reorder, drop, glue, scribble)


def check(seed: int) -> str:
    """Damage one recording; return what is wrong, "" if nothing is."""
    random = Random(seed)  # noqa: S311 - no secret
    name = random.choice([*HEALTHY, *SICK])
    text, damage = recording(name).read_text(errors="replace"), random.choice(DAMAGE)
    damaged = damage(random, text)
    try:
        judgement = judge(damaged)
    except Exception as error:  # noqa: BLE001 - any of them is the finding
        return f"{seed}: {damage.__name__} of {name}: {type(error).__name__}: {error}"
    is_ok = judgement.verdict is Verdict.OK
    if (
        is_ok
        and damage is cut
        and HEALTHY.get(name)
        and damaged.strip()
        and _kept(judgement.facts) != _kept(judge(text).facts)
    ):
        return f"{seed}: {name} is OK although a part of it is missing"
    if is_ok and damage in (cut, reorder) and name in SICK and _noticeable(name):
        return f"{seed}: {damage.__name__} of {name} is OK although it has a fault"
    return ""


def _kept(facts: object) -> str:
    """Facts without the processes of GPUs: a list that is cut between two of them is a shorter list."""
    return re.sub(r"'(processes|displays)': \[[^\]]*\]", "", str(facts))


def _noticeable(name: str) -> bool:
    """True if the fault is in the values: a table of dcgmi or lfs may lose the line that has it."""
    return "/q_" in name or name.endswith((".xml", ".json"))


def check_error(seed: int) -> str:
    """Put an error in place of one value; return what is wrong, "" if nothing is."""
    random = Random(seed)  # noqa: S311 - no secret
    name, error = random.choice(VALUES), random.choice(ERRORS)
    lines = recording(name).read_text().splitlines()
    first = next(number for number, line in enumerate(lines) if re.search(r"Product Name|<product_name>", line))
    places = [n for n, line in enumerate(lines) if n >= first and _value(line) and "process" not in line.lower()]
    at = random.choice(places)
    start, end = _value(lines[at]) or (0, 0)
    lines[at] = f"{lines[at][:start]}{error}{lines[at][end:]}"
    verdict = judge("\n".join(lines) + "\n").verdict
    return (
        "" if verdict in {Verdict.FAIL, Verdict.UNKNOWN} else f"{seed}: {name} is {verdict} with {lines[at].strip()!r}"
    )


def _value(line: str) -> tuple[int, int] | None:
    """Where the value of a line stands."""
    if element := re.match(r"\s+<\w+>([^<]+)</\w+>\s*$", line):
        return element.span(1)
    label, colon, value = line.partition(" : ")
    in_list = label.strip() in {
        "Process ID",
        "Type",
        "Name",
        "Used GPU Memory",
        "GPU instance ID",
        "Compute instance ID",
    }
    return (len(label) + 3, len(line)) if colon and value and not in_list and line.startswith("    ") else None


def main(count: int, first: int = 0) -> int:
    started, wrong, kinds = time.monotonic(), [], Counter[str]()
    for seed in range(first, first + count):
        for one in (check(seed), check_error(seed) if seed % 10 == 0 else ""):
            if one:
                wrong.append(one)
                kinds[one.partition(": ")[2][:90]] += 1
    lines = [*(f"{number} {kind}" for kind, number in kinds.most_common(30)), *wrong[:20]]
    seconds = time.monotonic() - started
    lines.append(f"{count} cases over {len(FORMATS)} formats in {seconds:.0f} s: {len(wrong)} wrong")
    sys.stdout.write("\n".join(lines) + "\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
