"""A host tree with a stand-in kubelet under a stand-in systemctl, and a stand-in kubectl."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.rig.trees.host import program, put, small_server

CONFIG = "/var/lib/kubelet/config.yaml"
FOLDER = "/etc/kubernetes/kubelet.conf.d"
STATE = "/var/lib/kubelet/cpu_manager_state"
TEXT = """apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
cpuManagerPolicy: none # for now
maxPods: 50
"""
# In place of systemd and the kubelet: like the real one, it does not start with a state file of another policy.
SYSTEMCTL = f"""#!{sys.executable}
import json, os, pathlib, re, sys
root = pathlib.Path(os.environ["GPUCTL_ROOT"])
pid, state = root / "run/standin-kubelet", root / "var/lib/kubelet/cpu_manager_state"
verb = sys.argv[1]
with (root / "run/standin-calls").open("a") as calls:
    calls.write(verb + "\\n")
if verb == "stop" and (root / "run/standin-does-not-stop").exists():
    sys.exit("Job for kubelet.service canceled.")
elif verb == "stop":
    pid.unlink(missing_ok=True)
elif verb == "start":
    drop_in = root / "etc/kubernetes/kubelet.conf.d/99-gpuctl.conf"
    text = (root / "var/lib/kubelet/config.yaml").read_text() + (drop_in.read_text() if drop_in.exists() else "")
    policy = "static" if re.search(r'cpuManagerPolicy"?: "?static', text) else "none"
    if (root / "run/standin-fails").exists() and policy == "static":
        sys.exit(0)
    if state.exists() and json.loads(state.read_text())["policyName"] != policy:
        sys.exit(0)
    if not (root / "run/standin-hangs").exists() or policy == "none":
        state.write_text(json.dumps({{"policyName": policy}}))
    if re.search(r'memoryManagerPolicy"?: "?Static', text):
        (state.parent / "memory_manager_state").write_text(json.dumps({{"policyName": "Static"}}))
    pid.write_text("77")
elif verb == "show":
    runs, known = pid.exists(), not (root / "run/standin-absent").exists()
    print(f"Id={{sys.argv[-1]}}\\nLoadState={{'loaded' if known else 'not-found'}}")
    print(f"ActiveState={{'active' if runs else 'failed'}}\\nUnitFileState=enabled\\nMainPID={{77 if runs else 0}}")
    if "ExecStart" in sys.argv[2] or "NRestarts" in sys.argv[2]:
        more = root / "run/standin-properties"
        print(more.read_text() if more.exists() else "NRestarts=0")
"""
KUBECTL = f"""#!{sys.executable}
import os, pathlib, sys
answer = pathlib.Path(os.environ["GPUCTL_ROOT"], "run", "standin-" + sys.argv[sys.argv.index("get") + 1])
if not answer.exists():
    sys.exit("Unable to connect to the server")
sys.stdout.write(answer.read_text())
"""


def kubelet_host(root: Path, *options: str, text: str = TEXT, version: str = "v1.34.1") -> Path:
    """A drained node n1 with 8 processors on 2 NUMA nodes. `options`: of the kubelet, beside --config."""
    small_server(root)
    put(root, "/sys/devices/system/cpu/online", "0-7\n")
    for node, cpus in enumerate(("0-3", "4-7")):
        put(root, f"/sys/devices/system/node/node{node}/cpulist", f"{cpus}\n")
    put(root, "/proc/meminfo", f"MemTotal: {64 * 2**20} kB\n")
    put(root, "/proc/sys/kernel/hostname", "N1\n")
    put(root, "/etc/kubernetes/kubelet.conf", "standin\n")
    put(root, CONFIG, text, 0o640)
    put(root, STATE, '{"policyName": "none"}')
    words = ["/usr/bin/kubelet", "--kubeconfig=/etc/kubernetes/kubelet.conf", "--config", CONFIG, *options]
    put(root, "/proc/77/cmdline", "".join(f"{word}\0" for word in words))
    put(root, "/run/standin-kubelet", "77")
    put(root, "/run/standin-node", "n1 true")
    put(root, "/run/standin-pods", "kube-system/cilium-x\tDaemonSet\t\tRunning\ndefault/done\tJob\t\tSucceeded\n")
    program(root, "kubelet", f"#!/bin/sh\necho Kubernetes {version}\n")
    program(root, "systemctl", SYSTEMCTL)
    program(root, "kubectl", KUBECTL)
    for name in (
        "sh",
        "rm",
        "mv",
        "cp",
        "grep",
        "sleep",
        "sync",
        "basename",
        "dirname",
    ):  # the engine runs only programs of its tree
        program(root, name, f'#!/bin/sh\nexec /usr/bin/{name} "$@"\n')
    return root
