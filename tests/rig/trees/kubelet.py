"""A host tree with a stand-in kubelet under a stand-in systemctl, and a stand-in kubectl."""

from __future__ import annotations

from pathlib import Path

from tests.rig.trees.host import QUICK_PROGRAM, program, put, small_server

CONFIG = "/var/lib/kubelet/config.yaml"
FOLDER = "/etc/kubernetes/kubelet.conf.d"
STATE = "/var/lib/kubelet/cpu_manager_state"
TEXT = """apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
cpuManagerPolicy: none # for now
maxPods: 50
"""
# In place of systemd and the kubelet: like the real one, it does not start with a state file of another policy.
SYSTEMCTL = f"""{QUICK_PROGRAM}
verb = sys.argv[1]
write("run/standin-calls", verb + "\\n", "a")
if verb == "stop" and exists("run/standin-does-not-stop"):
    sys.exit("Job for kubelet.service canceled.")
elif verb == "stop":
    remove("run/standin-kubelet")
elif verb == "start":
    import json, re
    drop_in, state = "etc/kubernetes/kubelet.conf.d/99-gpuctl.conf", "var/lib/kubelet/cpu_manager_state"
    text = read("var/lib/kubelet/config.yaml") + (read(drop_in) if exists(drop_in) else "")
    policy = "static" if re.search(r'cpuManagerPolicy"?: "?static', text) else "none"
    if exists("run/standin-fails") and policy == "static":
        sys.exit(0)
    if exists(state) and json.loads(read(state))["policyName"] != policy:
        sys.exit(0)
    if not exists("run/standin-hangs") or policy == "none":
        write(state, json.dumps({{"policyName": policy}}))
    if re.search(r'memoryManagerPolicy"?: "?Static', text):
        write("var/lib/kubelet/memory_manager_state", json.dumps({{"policyName": "Static"}}))
    write("run/standin-kubelet", "77")
elif verb == "show":
    runs, known = exists("run/standin-kubelet"), not exists("run/standin-absent")
    print(f"Id={{sys.argv[-1]}}\\nLoadState={{'loaded' if known else 'not-found'}}")
    print(f"ActiveState={{'active' if runs else 'failed'}}\\nUnitFileState=enabled\\nMainPID={{77 if runs else 0}}")
    if "ExecStart" in sys.argv[2] or "NRestarts" in sys.argv[2]:
        print(read("run/standin-properties") if exists("run/standin-properties") else "NRestarts=0")
"""
KUBECTL = f"""{QUICK_PROGRAM}
answer = "run/standin-" + sys.argv[sys.argv.index("get") + 1]
if not exists(answer):
    sys.exit("Unable to connect to the server")
sys.stdout.write(read(answer))
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
