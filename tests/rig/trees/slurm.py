"""A host tree with GPUs and stand-ins for slurmd, systemctl and scontrol of one drained node."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.rig.trees.gpus import H100, gpu_server
from tests.rig.trees.host import QUICK_PROGRAM, program, put

GRES, CGROUP, CONF = "/etc/slurm/gres.conf", "/etc/slurm/cgroup.conf", "/etc/slurm/slurm.conf"
NODE = (
    "NodeName=n1 Arch=x86_64 CoresPerSocket=2 CPUAlloc=0 CPUTot=8 Gres={gres} Sockets=2 Boards=1 State={state} "
    "ThreadsPerCore={threads} SlurmdStartTime={start} Reason=test\n"
)
# In place of systemd and slurmd. `run/standin-fails`: a word in gres.conf with which slurmd does not run;
# `run/standin-invalid`: one with which slurmctld calls the node invalid. `run/standin-silent`: "before" or "after" the
# restart, while a change is tried, slurmctld does not answer. `run/standin-returns`: systemd will start slurmd again.
SYSTEMCTL = f"""{QUICK_PROGRAM}
verb = sys.argv[1]
write("run/standin-calls", verb + "\\n", "a")
if verb == "restart":
    text = read("etc/slurm/gres.conf") if exists("etc/slurm/gres.conf") else ""
    write("run/standin-started", str(int(read("run/standin-started")) + 1))
    state = "IDLE+DRAIN"
    if exists("run/standin-invalid") and read("run/standin-invalid") in text:
        state = "IDLE+DRAIN+INVALID_REG"
    write("run/standin-state", state)
    if exists("run/standin-fails") and read("run/standin-fails") in text:
        remove("run/standin-slurmd")
    else:
        write("run/standin-slurmd", "77")
elif verb == "show":
    runs, known = exists("run/standin-slurmd"), not exists("run/standin-absent")
    print(f"Id={{sys.argv[-1]}}\\nLoadState={{'loaded' if known else 'not-found'}}")
    again = "activating" if exists("run/standin-returns") else "inactive"
    print(f"ActiveState={{'active' if runs else again}}\\nUnitFileState=enabled\\nMainPID={{77 if runs else 0}}")
    print("NRestarts=0\\nExecMainStartTimestampMonotonic=" + read("run/standin-began"))
"""
SCONTROL = f"""{QUICK_PROGRAM}
import fcntl, time
state = read("run/standin-state")
if exists("run/standin-silent") and exists("run/gpuctl-slurm.lock"):
    try:
        fcntl.flock(open(f"{{root}}/run/gpuctl-slurm.lock", "r+"), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        restarted = "restart" in read("run/standin-calls")
        if read("run/standin-silent") == "before" and not restarted:
            state = ""
        if read("run/standin-silent") == "after" and restarted:
            time.sleep(1000)
if not state:
    sys.exit("slurm_load_node error: Unable to contact slurm controller (connect failure)")
if sys.argv[1:] == ["show", "config"]:
    print("SLURM_CONF              = " + read("run/standin-conf"))
    sys.exit()
gres, start, threads = read("run/standin-gres"), read("run/standin-started"), read("run/standin-threads")
sys.stdout.write({NODE!r}.format(gres=gres, state=state, start=start, threads=threads))
"""
# `slurmd -G`: as the real one, it ends at a file with a word that it does not know.
SLURMD = f"""#!{sys.executable}
import pathlib, re, sys
conf = pathlib.Path(sys.argv[sys.argv.index("-f") + 1])
gres = conf.with_name("gres.conf")
text = gres.read_text() if gres.exists() else ""
if "nvml" in text:
    sys.exit("slurmd: We were configured with nvml functionality, but that lib wasn't found on the system.")
if "odd" in text:
    sys.exit(f"slurmd: error: Parsing error at unrecognized key: odd\\nslurmd: fatal: error opening/reading {{gres}}")
for line in re.findall("Name=gpu.*", text):
    first, last = re.search(r"nvidia\\[?(\\d+)-?(\\d*)", line).groups()
    print(f"slurmd: Gres Name=gpu Type=x Count={{int(last or first) - int(first) + 1}} Index=0", file=sys.stderr)
"""


def slurm_node(root: Path, *models: str, gres: str = "gpu:h100:2") -> Path:
    """A drained and empty node n1: two sockets of two cores with two threads each, GPUs on both."""
    gpu_server(root, *(models or (H100, H100)))
    put(root, "/sys/devices/system/cpu/online", "0-7\n")
    for node, cpus in enumerate(("0-1,4-5", "2-3,6-7")):
        put(root, f"/sys/devices/system/node/node{node}/cpulist", f"{cpus}\n")
    for cpu in range(8):
        core = cpu % 4
        put(root, f"/sys/devices/system/cpu/cpu{cpu}/topology/physical_package_id", f"{core // 2}\n")
        put(root, f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list", f"{core},{core + 4}\n")
    for index, _ in enumerate(models or (H100, H100)):
        device = f"/sys/bus/pci/devices/0000:{16 + index:02x}:00.0"
        for name, value in {
            "class": "0x030200",
            "vendor": "0x10de",
            "device": "0x2330",
            "numa_node": str(index % 2),
        }.items():
            put(root, f"{device}/{name}", f"{value}\n")
        put(root, f"/dev/nvidia{index}", "")
    put(root, "/proc/sys/kernel/hostname", "n1.example\n")
    put(root, "/proc/77/cmdline", "/usr/sbin/slurmd\0-D\0")
    put(root, "/proc/77/environ", "")
    put(root, "/proc/mounts", "/dev/sda1 / ext4 rw 0 0\n")
    put(root, "/proc/uptime", "1000.00 2000.00\n")
    put(root, CONF, "ClusterName=c\nSlurmctldHost=ctl\nGresTypes=gpu\nNodeName=n1 Gres=gpu:h100:2\n")
    put(root, "/run/standin-slurmd", "77")
    put(root, "/run/standin-state", "IDLE+DRAIN")
    put(root, "/run/standin-started", "1")
    put(root, "/run/standin-gres", gres)
    put(root, "/run/standin-conf", CONF)
    put(root, "/run/standin-threads", "2")
    put(root, "/run/standin-began", str(10**12))  # after every change of a file
    program(root, "systemctl", SYSTEMCTL)
    program(root, "scontrol", SCONTROL)
    program(root, "slurmd", SLURMD)
    for name in ("sh", "rm", "mv", "cp", "sleep", "sync", "basename", "dirname", "tr", "sed", "flock", "timeout"):
        program(root, name, f'#!/bin/sh\nexec /usr/bin/{name} "$@"\n')
    return root
