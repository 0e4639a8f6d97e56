"""Damage an output of each format at random: no reader may raise, and nothing damaged may pass for healthy.

By hand: `nice -n 19 python -m tests.rig.fuzz_formats 100000` for all formats, then the name of one; `--seed` is the
first seed. The oracle, by the kind of damage:

- Whatever happens, no exception.
- Before the damage a healthy output is OK and an ill one is not: `check` refuses a source that is not.
- An ill output stays as ill, or becomes UNKNOWN, while a line that shows its fault is in it, whatever is cut, glued to
  it or put elsewhere: FAIL never becomes WARN, but for a fault of a kernel log before the line of a later boot.
- Of a format that can notice what is missing, an ill output is never OK once lines are missing or in disorder.
- An error word (ERR!, Unknown Error, GPU requires reset) in place of any value is FAIL or UNKNOWN.
- [N/A] is a legitimate value: it may end a fault, so that only exceptions count; but not the one of a value that
  every GPU has.
- A value that decides a check is never cut out, emptied or replaced by an error or another word with that check still
  OK. It decides the checks that its ill value fails in the ill outputs, and its healthy one does not.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from itertools import takewhile
from pathlib import Path
from random import Random

from gpuctl.audit import formats, knowledge, merge, recorded
from gpuctl.audit import judge as log_judge
from gpuctl.audit import read as log_file
from gpuctl.audit.formats import FORMATS, mixed, recognise
from gpuctl.domain.findings import Finding, Verdict, overall, unknown
from gpuctl.workflows import audit_rules

DATA = Path(__file__).parents[1] / "data/nvidia-smi"
TABLES = ("nvidia-smi --query-gpu", "nvidia-smi topo -m")  # formats with several values a line
ERRORS = ("ERR!", "[Unknown Error]", "Unknown Error", "[GPU requires reset]", "GPU is lost", "[GPU is lost]")
SURE = (Verdict.FAIL, Verdict.UNKNOWN)
LOG = "kernel log"


@dataclass(frozen=True)
class Source:
    """An output. `fault`: expression for the lines that show its fault; "" if it is healthy.

    `whole`: its format notices lines that are missing. `label`: expression for the line that gives the fault its
    meaning, such as the names of columns, if that may be damaged without a trace. `values`: expression for the values
    of a line (group 1) in whose place an error may stand; "" if errors of its format are no words.
    """

    format: str
    text: str
    fault: str = ""
    whole: bool = False
    label: str = ""
    values: str = ""


# ---- outputs ---------------------------------------------------------------------------------------------------------

XML_VALUE = r"^\s+<(?!process_name|timestamp)\w+>([^<]+)</\w+>$"
TEXT_VALUE = r"^ {4,}(?!Name |Process ID|Type |Used GPU)\S.*? : (.+)$"
# Element of nvidia-smi -q -x -> a sick value.
SICK_ELEMENTS = {
    "remapped_row_pending": "Yes", "remapped_row_failure": "Yes", "dram_uncorrectable": "3",
    "gpu_recovery_action": "Reset", "clocks_event_reason_hw_slowdown": "Active", "gpu_temp_tlimit": "-1 C",
    "current_power_limit": "300.00 W", "current_link_width": "8x", "sram_threshold_exceeded": "Yes",
    "persistence_mode": "Disabled", "compute_mode": "Prohibited", "pending_ecc": "Disabled",
    "row_remapper_histogram_none": "2 bank(s)", "attached_gpus": "3", "sram_uncorrectable_parity": "1",
    "remapped_row_unc": "512", "clocks_event_reason_sw_thermal_slowdown": "Active", "status": "Failure",
    "state": "In Progress", "max_link_width": "32x", "default_power_limit": "900.00 W",
}  # fmt: skip
SICK_LINES = {
    "Remapping Failure Occurred": "Yes", "Pending  ": "Yes", "HW Slowdown": "Active", "GPU Recovery Action": "Reset",
    "Persistence Mode": "Disabled", "Compute Mode": "Prohibited", "GPU Current T.Limit Temp": "0 C",
    "SRAM Threshold Exceeded": "Yes", "Unrepairable Memory": "Yes", "DRAM Uncorrectable": "2", "Attached GPUs": "2",
}  # fmt: skip
CSV_HEAD = (
    "index, name, uuid, pci.bus_id, persistence_mode, compute_mode, ecc.mode.current, ecc.mode.pending,"
    " ecc.errors.uncorrected.volatile.total, remapped_rows.pending, remapped_rows.failure,"
    " remapped_rows.uncorrectable, temperature.gpu, temperature.gpu.tlimit, power.limit [W], power.default_limit [W],"
    " clocks_event_reasons.active, count"
)
CSV_ROW = (
    "{n}, NVIDIA H200, GPU-0000000{n}-0000-0000-0000-000000000000, 00000000:0{n}:00.0, Enabled, Default, Enabled,"
    " Enabled, 0, {remap}, No, 0, 41, 46, 700.00 W, 700.00 W, {mask}, 2"
)
TOPO = """        GPU0    GPU1    GPU2    GPU3    NIC0    CPU Affinity    NUMA Affinity   GPU NUMA ID
GPU0     X      NV18    NV18    NV18    PIX     0-15    0               N/A
GPU1    NV18     X      NV18    {link}    SYS     0-15    0               N/A
GPU2    NV18    NV18     X      NV18    SYS     0-15    0               N/A
GPU3    NV18    {link}    NV18     X      SYS     0-15    0               N/A
NIC0    PIX     SYS     SYS     SYS      X

Legend:

  X    = Self
"""
V4 = """{{
  "DCGM Diagnostic" : {{
    "test_categories" : [
      {{
        "category" : "Hardware",
        "tests" : [
          {{
            "name" : "memory",
            "results" : [
              {{
                "entity_group" : "GPU",
                "entity_group_id" : 1,
                "entity_id" : 0,
                "status" : "{status}"
              }},
              {{
                "entity_group" : "GPU",
                "entity_group_id" : 1,
                "entity_id" : 1,
                "status" : "Pass"
              }}
            ],
            "test_summary" : {{
              "status" : "{status}"
            }}
          }}
        ]
      }}
    ]
  }},
  "metadata" : {{
    "version" : "4.2.3",
    "Driver Version Detected" : "580.82.09"
  }}
}}
"""
TABLE = """+---------------------------+------------------------------------------------+
| Diagnostic                | Result                                         |
+===========================+================================================+
|-----  Metadata  ----------+------------------------------------------------|
| DCGM Version              | 3.3.5                                          |
| Driver Version Detected   | 535.161.08                                     |
|-----  Deployment  --------+------------------------------------------------|
| Denylist                  | Pass                                           |
| NVML Library              | Pass                                           |
| Page Retirement/Row Remap | {status}                                           |
+-----  Hardware  ----------+------------------------------------------------+
| GPU Memory                | Pass - All                                     |
+---------------------------+------------------------------------------------+
"""
DISCOVERY = """2 GPUs found.
+--------+----------------------------------------------------------------------+
| GPU ID | Device Information                                                   |
+--------+----------------------------------------------------------------------+
| 0      | Name: NVIDIA H800                                                    |
|        | PCI Bus ID: 00000000:18:00.0                                         |
|        | Device UUID: GPU-34bf77d1-0000-0000-0000-32d326c5039c                |
+--------+----------------------------------------------------------------------+
| 1      | Name: NVIDIA H800                                                    |
|        | PCI Bus ID: 00000000:19:00.0                                         |
|        | Device UUID: GPU-34bf77d1-0000-0000-0000-32d326c5039d                |
+--------+----------------------------------------------------------------------+
"""
NVLINK_TABLE = (
    "+-----------------------------+------------------------------------------------+\n"
    "| NVLINK Error Counts                                                          |\n"
    "| GPU 1                                                                        |\n"
    "+=============================+================================================+\n"
    "| Link 0                      |                                                |\n"
    "| -> CRC FLIT Error           | 0                                              |\n"
    "| -> Replay Error             | {count}                                              |\n"
    "| Link 1                      |                                                |\n"
    "| -> CRC FLIT Error           | 0                                              |\n"
    "| -> Replay Error             | 0                                              |\n"
    "+-----------------------------+------------------------------------------------+\n"
)
HEALTH = (
    "Health Monitor Report\n+===================+==========================================================+\n"
    "| Overall Health    | {state}                                                  |\n"
    "+-------------------+----------------------------------------------------------+\n"
)
LINKS = "".join(
    f"GPU {gpu}: NVIDIA H100 80GB HBM3 (UUID: GPU-0{gpu})\n"
    + "".join(f"\t Link {link}: {{speed{gpu}{link}}}\n" for link in range(4))
    for gpu in range(2)
)
LINK_ERRORS = "".join(
    f"GPU {gpu}: NVIDIA H100 80GB HBM3 (UUID: GPU-0{gpu})\n"
    + "".join(
        f"\t Link {link}: Replay Errors: {{count{gpu}{link}}}\n\t Link {link}: CRC Errors: 0\n" for link in range(3)
    )
    for gpu in range(2)
)
CAPABILITIES = "GPU 0: NVIDIA H800 (UUID: GPU-0)\n" + "".join(
    f"\t Link {link}, P2P is supported: true\n\t Link {link}, SLI is supported: false\n" for link in range(3)
)
LISTED = "".join(f"GPU {gpu}: NVIDIA H100 80GB HBM3 (UUID: GPU-0{gpu})\n" for gpu in range(4))
LOST_GPU = "Unable to determine the device handle for GPU0000:91:00.0: Unknown Error\n"
SMI_TABLE = """+-----------------------------------------------------------------------------+
| NVIDIA-SMI 525.125.06   Driver Version: 525.125.06   CUDA Version: 12.0     |
|-------------------------------+----------------------+----------------------+
| GPU  Name        Persistence-M| Bus-Id        Disp.A | Volatile Uncorr. ECC |
| Fan  Temp  Perf  Pwr:Usage/Cap|         Memory-Usage | GPU-Util  Compute M. |
|===============================+======================+======================|
|   0  NVIDIA GeForce ...  Off  | 00000000:01:00.0 Off |                    0 |
|ERR!   38C    P5    49W / 450W |   2021MiB / 23028MiB |      0%      Default |
+-------------------------------+----------------------+----------------------+
"""
SAMPLES = "# gpu    pwr  gtemp  mtemp     sm    mem\n# Idx      W      C      C      %      %\n" + "".join(
    f"    0    10{second}     53      -     10      2\n" for second in range(4)
)
IBSTAT = "".join(
    f"CA 'mlx5_{number}'\n\tCA type: MT4129\n\tNumber of ports: 1\n\tFirmware version: 28.39.1002\n\tPort 1:\n"
    f"\t\tState: {{state{number}}}\n\t\tPhysical state: {{physical{number}}}\n\t\tRate: 400\n\t\tBase lid: 7\n"
    "\t\tLink layer: InfiniBand\n"
    for number in range(3)
)
ETHTOOL = "$ ethtool -S ens5\nNIC statistics:\n" + "".join(
    f"     {name}: {{{name}}}\n"
    for name in ("tx_timeout", "reset_fail", "bw_in_allowance_exceeded", "rx_drops", "suspend")
)
LFS = """UUID                       bytes        Used   Available Use% Mounted on
fsx-MDT0000_UUID            4.4G      214.5M        3.9G   4% /fsx[MDT:0]
fsx-OST0000_UUID            2.0T      751.3G        1.1T  37% /fsx[OST:0]
fsx-OST0001_UUID            2.0T        {used}       {free}  {percent}% /fsx[OST:1]

filesystem_summary:         4.0T        1.5T        2.2T  37% /fsx
"""
STRIPES = "".join(
    f"./checkpoint_{number}\nlmm_stripe_count:   4\nlmm_stripe_size:    1048576\nlmm_pattern:        raid0\n\tobdidx\n"
    for number in range(3)
)
MOUNTS = (
    "/dev/nvme0n1p1 / ext4 rw,relatime 0 0\n10.0.0.9@tcp:/fsx /fsx lustre rw,flock 0 0\n"
    "10.0.0.8:/home /home nfs4 rw,{hard},proto=tcp 0 0\nproc /proc proc rw 0 0\n"
)
REFUSED = (
    "Unable to determine the device handle for GPU 0000:9B:00.0: GPU is lost.  Reboot the system to recover this GPU\n"
)
DCGM_REFUSED = "Error: unable to establish a connection to the specified host: localhost\nError: Unable to connect\n"
KERNEL = """[    1.000000] Linux version 6.8.0-45-generic
[  512.100000] NVRM: loading NVIDIA UNIX x86_64 Kernel Module  570.86.15
[ 7311.000000] nvidia-nvswitch0: open (major=510)
{line}
[ 7999.000000] ena 0000:00:05.0 ens5: Link is Up
[ 8000.000000] systemd[1]: Reached target multi-user.target
"""
XID = "[ 7400.000000] NVRM: Xid (PCI:0000:9b:00): 79, pid=4711, name=python3, GPU has fallen off the bus."
SXID = "[ 7400.000000] nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 20034, Fatal, Link 30 LTSSM Fault Up"
FAULT = "[ 7400.000000] EXT4-fs error (device sda1): Remounting filesystem read-only"


def _healthy_xml() -> str:
    """Two of the eight GPUs of the excerpt, set up as they should be."""
    text = (DATA / "570-h100-8gpu.xml").read_text()
    head, *gpus = re.split(r"(?=\t<gpu id=)", text)
    end = "</nvidia_smi_log>\n"
    body = "".join(gpu.replace("Disabled</persistence", "Enabled</persistence").replace(end, "") for gpu in gpus[:2])
    return head.replace(">8</attached", ">2</attached") + body + end


def _healthy_text() -> str:
    """The first GPU of the excerpt of driver 610."""
    head, first, _ = re.split(r"(?=^GPU 0)", (DATA / "610-h200-2gpu.txt").read_text(), flags=re.MULTILINE)
    return re.sub(r"(Attached GPUs +: )2", r"\g<1>1", head) + first


def _xml_with(element: str, value: str) -> Source:
    text, count = re.subn(f"<{element}>[^<]*<", f"<{element}>{value}<", _healthy_xml(), count=1)
    assert count == 1, element
    return Source("nvidia-smi -q -x", text, f"<{element}>{re.escape(value)}<", whole=True)


def _text_with(label: str, value: str) -> Source:
    text, count = re.subn(
        rf"^( *{re.escape(label)} *: ).*$", rf"\g<1>{value}", _healthy_text(), count=0, flags=re.MULTILINE
    )
    assert count, label
    return Source("nvidia-smi -q", text, rf"^ *{re.escape(label)} *: {value}$", whole=True)


def _formatted(template: str, **values: str) -> str:
    """The template with values for the fields that none are given for."""
    names = set(re.findall(r"\{(\w+)\}", template))
    usual = {name: "26.562 GB/s" if name.startswith("speed") else "0" for name in names}
    usual |= {name: "Active" if name.startswith("state") else "LinkUp" for name in names if name[:2] in {"st", "ph"}}
    return template.format(**{**usual, **values})


@cache
def sources() -> dict[str, list[Source]]:
    """Outputs by the name of their format; several formats have one name."""
    rows = [CSV_ROW.format(n=n, remap="No", mask="0x0000000000000001") for n in range(2)]
    csv_value = r"(?<=, )(?!NVIDIA)([^,]+)$"
    listed = [
        Source("nvidia-smi -q -x", _healthy_xml(), whole=True, values=XML_VALUE),
        *(_xml_with(element, value) for element, value in SICK_ELEMENTS.items()),
        Source("nvidia-smi -q", _healthy_text(), whole=True, values=TEXT_VALUE),
        *(_text_with(label, value) for label, value in SICK_LINES.items()),
        Source("nvidia-smi --query-gpu", "\n".join([CSV_HEAD, *rows, ""]), whole=True, values=csv_value),
        *(
            Source(
                "nvidia-smi --query-gpu",
                "\n".join([CSV_HEAD, rows[0], row, ""]),
                f"^{re.escape(row)}$",
                whole=True,
                label=f"^{re.escape(CSV_HEAD)}$",
            )
            for row in (
                CSV_ROW.format(n=1, remap="Yes", mask="0x0000000000000001"),
                CSV_ROW.format(n=1, remap="No", mask="0x0000000000000048"),
            )
        ),
        Source("nvidia-smi topo -m", TOPO.format(link="NV18"), whole=True, values=r"\s(NV18|PIX|SYS)\s"),
        Source("nvidia-smi topo -m", TOPO.format(link="SYS "), r"^GPU1 .*SYS \s+SYS ", whole=True),
        Source("dcgmi diag -j", V4.format(status="Pass"), whole=True, values=r'"status" : "(Pass)"'),
        Source("dcgmi diag -j", V4.format(status="Fail"), r'"status" : "Fail"', whole=True),
        Source("dcgmi diag", TABLE.format(status="Pass"), values=r"\| (Pass(?: - All)?) +\|$"),
        Source("dcgmi diag", TABLE.format(status="Fail"), r"^\| Page Ret.*\| Fail"),
        Source("dcgmi discovery", DISCOVERY),
        Source("dcgmi discovery", DISCOVERY.replace("2 GPUs", "3 GPUs"), r"^3 GPUs found\.$"),
        Source("dcgmi nvlink -e", NVLINK_TABLE.format(count="0"), values=r"\| (0) +\|$"),
        Source("dcgmi nvlink -e", NVLINK_TABLE.format(count="7"), r"Replay Error +\| 7 "),
        Source("dcgmi health", HEALTH.format(state="Healthy"), whole=True, values=r"\| (Healthy) "),
        Source("dcgmi health", HEALTH.format(state="Failure"), r"Overall Health.*Failure", whole=True),
        Source("nvidia-smi nvlink -s", _formatted(LINKS), values=r": (26.562 GB/s)$"),
        Source("nvidia-smi nvlink -s", _formatted(LINKS, speed12="<inactive>"), r"Link 2: <inactive>$"),
        Source("nvidia-smi nvlink -e", _formatted(LINK_ERRORS), values=r": (0)$"),
        Source("nvidia-smi nvlink -e", _formatted(LINK_ERRORS, count11="9"), r"Link 1: Replay Errors: 9$"),
        Source("nvidia-smi nvlink -c", CAPABILITIES, values=r": (true|false)$"),
        Source("nvidia-smi -L", LISTED),
        Source("nvidia-smi -L", LISTED + LOST_GPU, "^Unable to determine the device handle for GPU.*: Unknown Error$"),
        Source("nvidia-smi", SMI_TABLE, r"^\|ERR!", whole=True),
        Source("nvidia-smi", REFUSED, "GPU is lost", whole=True),
        Source("nvidia-smi dmon", SAMPLES, values=r"\s(53)\s"),
        Source("ibstat", _formatted(IBSTAT), values=r"(?:State|state|Rate|layer): (\S+)$"),
        Source("ibstat", _formatted(IBSTAT, state1="Down", physical1="Polling"), r"State: Down$"),
        Source("ethtool -S", _formatted(ETHTOOL), values=r": (0)$"),
        Source("ethtool -S", _formatted(ETHTOOL, tx_timeout="4"), r"^ {5}tx_timeout: 4$"),
        Source("lfs df", LFS.format(used="761.3G", free="1.1T", percent="37"), values=r" (\d+%) /"),
        Source(
            "lfs df", LFS.format(used="1.9T", free="55.1M", percent="99"), r"^fsx-OST0001_UUID .* 99% /fsx\[OST:1\]$"
        ),
        Source("lfs getstripe", STRIPES, values=r"count: +(\d+)$"),
        Source("mount", MOUNTS.format(hard="hard"), values=r" nfs4 (\S+) "),
        Source("mount", MOUNTS.format(hard="soft"), r"^\S+ /home nfs4 rw,soft,proto=tcp "),
        Source("dcgmi", DCGM_REFUSED, "^Error: ", whole=True),
        Source(LOG, KERNEL.format(line="[ 7400.000000] nvidia-nvswitch1: open (major=510)")),
        *(Source(LOG, KERNEL.format(line=line), f"^{re.escape(line)}$") for line in (XID, SXID, FAULT)),
    ]
    names = {source.format for source in listed}
    assert names == {known.name for known in FORMATS} | {LOG}, names
    return {name: [source for source in listed if source.format == name] for name in sorted(names)}


# ---- verdicts --------------------------------------------------------------------------------------------------------


def judge(text: str) -> Verdict:
    """Verdict on a text, judged as a file of it is."""
    return overall(findings(text))


def findings(text: str) -> list[Finding]:
    """Findings for a text, judged as a file of it is; none if it is refused as a whole."""
    known = recognise(text[: recorded.LOOK])
    if known is None:
        lines = text.splitlines(keepends=True)
        notes = mixed.LogNotes()
        for line in lines:
            notes.note(line)
        log, faults = log_file.read_lines(lines)
        return log_judge.judge("x", log, knowledge.catalogue(), faults, notes.findings())
    try:
        record = formats.read(known, text)
    except ValueError as error:
        return [unknown("file", "x", str(error))]
    facts, notes_of_file, _ = merge.merged({"x": record})
    judged: list[Finding] = audit_rules.judge_outputs({"x": facts}, knowledge.dcgm_errors()) if facts else []
    return [*notes_of_file, *judged]


@cache
def verdict_of(source: Source) -> Verdict:
    """Verdict on an output before any damage."""
    return judge(source.text)


@cache
def decided(source: Source) -> frozenset[str]:
    """Checks that an ill output fails, and the healthy one of its format does not."""
    return not_ok(findings(source.text)) - not_ok(findings(sources()[source.format][0].text))


def not_ok(listed: Iterable[Finding]) -> frozenset[str]:
    """Checks with a finding that is not OK."""
    return frozenset(finding.check for finding in listed if finding.verdict is not Verdict.OK)


# ---- damage ----------------------------------------------------------------------------------------------------------


def cut(random: Random, source: Source) -> str:
    at = random.randrange(len(source.text))
    return source.text[:at] if random.random() < 0.6 else source.text[at:]


def drop(random: Random, source: Source) -> str:
    lines = source.text.splitlines(keepends=True)
    for _ in range(random.randint(1, 3)):
        at = random.randrange(len(lines) or 1)
        lines[at : at + random.choice((1, 1, 1, 2, 5))] = []
    return "".join(lines)


def reorder(random: Random, source: Source) -> str:
    lines = source.text.splitlines(keepends=True)
    for _ in range(random.randint(1, 4)):
        first, second = random.randrange(len(lines)), random.randrange(len(lines))
        lines[first], lines[second] = lines[second], lines[first]
    return "".join(lines)


def glue(random: Random, source: Source) -> str:
    other = random.choice(random.choice(list(sources().values())))
    return random.choice((source.text + other.text, other.text + source.text, source.text * 2))


def scribble(random: Random, source: Source) -> str:
    at = random.randrange(len(source.text))
    junk = "".join(chr(random.randint(1, 0x2FF)) for _ in range(random.randint(0, 9)))
    return source.text[:at] + junk + source.text[at + random.randint(0, 9) :]


def replace_value(random: Random, source: Source) -> str:
    """An error word in place of a value; the text itself if its format has no values to replace."""
    return _replaced(random, source, random.choice(ERRORS))


def not_available(random: Random, source: Source) -> str:
    return _replaced(random, source, random.choice(("[N/A]", "N/A", "[Not Supported]", "")))


def _replaced(random: Random, source: Source, word: str) -> str:
    values = sources()[source.format][0].values
    lines = source.text.split("\n")
    places = [(number, match) for number, line in enumerate(lines) for match in re.finditer(values, line) if values]
    if not places:
        return source.text
    number, match = random.choice(places)
    lines[number] = lines[number][: match.start(1)] + word + lines[number][match.end(1) :]
    return "\n".join(lines)


DAMAGE: tuple[Callable[[Random, Source], str], ...] = (
    cut, drop, reorder, glue, scribble, replace_value, not_available,
)  # fmt: skip


def check(name: str, seed: int) -> str:
    """Damage one output of a format; return what is wrong, "" if nothing is."""
    random = Random(f"{name} {seed}")  # noqa: S311 - no secret
    source, damage = random.choice(sources()[name]), random.choice(DAMAGE)
    before, text = verdict_of(source), damage(random, source)
    if (before is Verdict.OK) is bool(source.fault):
        return f"{name} {seed}: the source is {before}, its fault: {source.fault or 'none'}"
    while text == source.text:  # a value that the output lacks, or two equal lines
        damage = random.choice(DAMAGE)
        text = damage(random, source)
    try:
        verdict = judge(text)
    except Exception as error:  # noqa: BLE001 - any of them is the finding
        return f"{name} {seed}: {damage.__name__}: {type(error).__name__}: {error}"
    if wrong := _wrong(source, damage, text, verdict):
        return f"{name} {seed}: {verdict} after {damage.__name__}: {wrong}"
    return ""


def _wrong(source: Source, damage: Callable[[Random, Source], str], text: str, verdict: Verdict) -> str:
    """The promise that a verdict on a damaged text breaks."""
    if damage is replace_value and text != source.text and verdict not in SURE:
        return "an error stands in place of a value"
    shown = all(re.search(part, text, re.MULTILINE) for part in (source.fault, source.label))
    milder = verdict is Verdict.OK or (
        verdict is Verdict.WARN and verdict_of(source) is Verdict.FAIL and not _rebooted(source, text)
    )
    if source.fault and damage is not not_available and shown and milder:
        return f"the line of the fault is in it: {source.fault}"
    if verdict is not Verdict.OK:
        return ""
    if source.fault and source.whole and damage in {cut, drop, reorder} and text.strip():
        return f"what is missing or in disorder was not noticed: {source.fault}"
    return ""


def _rebooted(source: Source, text: str) -> bool:
    """True if a kernel log begins anew after the last line of its fault."""
    *_, rest = re.split(source.fault, text, flags=re.MULTILINE)
    return source.format == LOG and "Linux version" in rest


def values_that_decide(source: Source) -> list[tuple[int, int, int]]:
    """Line, start and end of the values of the healthy output that are others in the ill one; none of a kernel log."""
    healthy, ill = (text.split("\n") for text in (sources()[source.format][0].text, source.text))
    if not source.fault or source.format == LOG or len(healthy) != len(ill):
        return []
    pairs = enumerate(zip(healthy, ill, strict=True))
    return [(number, *_value(one, other)) for number, (one, other) in pairs if one != other]


def _value(line: str, other: str) -> tuple[int, int]:
    """Start and end of the value in which two lines differ."""
    start = _alike(line, other)
    end = len(line) - _alike(line[start:][::-1], other[start:][::-1])
    while start and line[start - 1] not in ' \t>|",:[':
        start -= 1
    while end < len(line) and line[end] not in '<|",]' and line[end : end + 2].strip():
        end += 1
    return start, end


def _alike(line: str, other: str) -> int:
    """Number of characters with which both begin."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(line, other, strict=False)))


def check_value(name: str, seed: int) -> str:
    """Withhold a value that decides a check; return what is wrong, "" if nothing is."""
    random = Random(seed)  # noqa: S311 - no secret
    able = [source for source in sources()[name] if values_that_decide(source)]
    if not able:
        return ""
    source = random.choice(able)
    lines: list[str | None] = list(sources()[name][0].text.split("\n"))
    junk = "".join(random.choices("abcdefxyz?*~", k=random.randint(1, 9)))
    word = random.choice((*ERRORS, *ERRORS, "", junk, None) if source.whole else (*ERRORS, junk))
    for number, start, end in values_that_decide(source):
        line = lines[number] or ""
        if word is not None:
            lines[number] = line[:start] + word + line[end:]
        else:  # of a table only the cell
            lines[number] = line[:start].rstrip(", ") + line[end:] if source.format in TABLES else None
    text = "\n".join(line for line in lines if line is not None)
    try:
        listed = findings(text)
    except Exception as error:  # noqa: BLE001 - any of them is the finding
        return f"{name} {seed}: {word!r} for a value: {type(error).__name__}: {error}"
    judged = {finding.check for finding in listed}
    quiet = sorted((decided(source) & judged) - not_ok(listed))
    if quiet or overall(listed) is Verdict.OK:
        return f"{name} {seed}: {quiet or 'all'} OK with {word!r} for the value of {source.fault}"
    return ""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.rig.fuzz_formats", description=__doc__)
    parser.add_argument("count", type=int, help="cases for each format")
    parser.add_argument("format", nargs="*", help="names of formats; all by default")
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    options = parser.parse_intermixed_args()
    failed = 0
    for name in options.format or sources():
        started, kinds, wrong = time.process_time(), Counter[str](), []
        for seed in range(options.seed, options.seed + options.count):
            for one in filter(None, (check(name, seed), check_value(name, seed))):
                wrong.append(one)
                kinds[one.partition(": ")[2][:110]] += 1
        seconds = time.process_time() - started
        lines = [f"{name}: {options.count} cases in {seconds:.0f} s, {len(wrong)} wrong"]
        lines += [f"  {number} {kind}" for kind, number in kinds.most_common(12)] + [f"    {one}" for one in wrong[:6]]
        sys.stdout.write("\n".join(lines) + "\n")
        sys.stdout.flush()
        failed += len(wrong)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
