"""What users of plain Ansible, and of the command line, get: the same playbook, with check, diff, and progress."""

from __future__ import annotations

import base64
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.integration.cluster.deploy.lab import Lab
from tests.rig.command import Gpuctl

PLAYBOOK = Path(sys.executable).with_name("ansible-playbook")


def play(lab: Lab, *words: str, kubeconfig: str = "", **variables: object) -> tuple[int, str]:
    """Run the playbook as anybody would, from a folder of their own."""
    given = {"cluster_timeout": 60, **variables}
    given = given if "cluster_file" in given else {"cluster_file": lab.path(), **given}
    argv = [str(PLAYBOOK), "gpuctl.fleet.cluster_deploy", *words]
    argv += [word for name, value in given.items() for word in ("-e", f"{name}={value}")]
    own = {"KUBECONFIG": kubeconfig or str(lab.plane.kubeconfig), "HOME": str(lab.folder), "ANSIBLE_NOCOLOR": "1"}
    done = subprocess.run(
        argv, cwd=lab.folder, env={**os.environ, **own}, capture_output=True, text=True, check=False, timeout=180
    )
    return done.returncode, done.stdout + done.stderr


def test_plain_ansible_has_check_and_diff_and_a_second_run_changes_nothing(lab: Lab) -> None:
    before = lab.names()
    code, said = play(lab, "--check", "--diff")
    assert (code, "changed=1" in said, "+StatefulSet lab" in said) == (0, True, True)
    assert lab.names() == before
    assert play(lab)[0] == 0
    assert len(lab.get("pods")["items"]) == 2
    deployed = lab.names()
    code, said = play(lab, "--diff")
    assert (code, "changed=0" in said) == (0, True)
    assert lab.names() == deployed
    code, said = play(lab, cluster_state="absent", cluster_volumes="true")
    assert (code, "changed=1" in said) == (0, True)
    assert lab.names() == before


def test_the_file_and_a_relative_kubeconfig_are_found_from_where_ansible_is_started(lab: Lab) -> None:
    lab.path()
    known = os.path.relpath(lab.plane.kubeconfig, lab.folder)
    code, said = play(lab, "--check", kubeconfig=known, cluster_file="./lab.yaml")
    assert (code, "changed=1" in said) == (0, True)


def test_removing_fails_where_not_every_kind_may_be_looked_for(lab: Lab) -> None:
    code, said = play(lab, kubeconfig=str(lab.plane.as_account(lab.folder, lab.namespace)), cluster_state="absent")
    assert (code, "cannot destroy lab: some kinds of objects could not be listed" in said) == (2, True)


def test_what_fails_is_reported_in_one_line_and_nothing_is_touched(lab: Lab) -> None:
    before = lab.names()
    code, said = play(lab, cluster_nodes=3)
    assert code == 2
    assert "cannot deploy lab: gpus: nvidia.com/gpu: 2 of the 3 nodes that are needed can take a pod" in said
    assert lab.names() == before


def test_nothing_is_made_anew_unless_that_is_allowed(lab: Lab) -> None:
    own = {"storage": {"mode": "volumeClaimTemplates", "class_rwo": "rbd"}}
    lab.deploy(own, nodes=1, limit_s=0)
    first = lab.get("statefulset", "lab")["metadata"]["uid"]
    other = lab.path({"storage": {**own["storage"], "class_rwo": "nfs"}})
    code, said = play(lab, cluster_file=other)
    assert code == 2
    assert "StatefulSet lab would have to be recreated: existing volumes stay as they are" in said
    assert lab.get("statefulset", "lab")["metadata"]["uid"] == first
    assert play(lab, cluster_file=other, cluster_recreate="true", cluster_timeout=0)[0] == 0
    assert lab.get("statefulset", "lab")["metadata"]["uid"] != first


def test_without_the_python_package_ansible_says_what_is_missing(lab: Lab) -> None:
    code, said = play(lab, ansible_python_interpreter="/usr/bin/python3")
    assert code == 2
    assert "Failed to import the required Python library (gpuctl)" in said


def test_the_command_streams_what_goes_on_and_the_end_is_a_line(lab: Lab, gpuctl: Gpuctl) -> None:
    known = str(lab.plane.kubeconfig)
    said = gpuctl("cluster", "deploy", lab.path(), "--timeout", "60", KUBECONFIG=known)
    assert (said.code, said.out.splitlines()[-1]) == (0, "lab: 2 pods ready")
    told = said.err.splitlines()
    assert told.index("StatefulSet lab: created") < told.index(next(line for line in told if "lab-1: is ready" in line))
    assert gpuctl.private_folders() == []
    assert not (gpuctl.home / ".ansible").exists()
    status = gpuctl("cluster", "status", lab.path(), "-o", "json", KUBECONFIG=known)
    assert (status.code, status.json["verdict"], len(status.json["pods"])) == (0, "OK", 2)
    diff = gpuctl("cluster", "diff", lab.path(), "--nodes", "1", KUBECONFIG=known)
    assert (diff.code, "spec.replicas: 2 -> 1" in diff.out) == (0, True)
    scaled = gpuctl("cluster", "scale", lab.path(), "--nodes", "1", KUBECONFIG=known)
    assert (scaled.code, "UNKNOWN  busy" in scaled.err, "needs confirmation" in scaled.err) == (2, True, True)
    scaled = gpuctl("cluster", "scale", lab.path(), "--nodes", "1", "--yes", KUBECONFIG=known)
    assert (scaled.code, len(lab.get("pods")["items"])) == (0, 1)


def test_the_command_takes_a_relative_kubeconfig_and_says_in_json_why_it_is_tcp(lab: Lab, gpuctl: Gpuctl) -> None:
    known = os.path.relpath(lab.plane.kubeconfig, gpuctl.home)
    words = ("cluster", "deploy", lab.path(), "--mode", "auto", "--timeout", "0", "-o", "json")
    said = gpuctl(*words, KUBECONFIG=known)
    assert (said.code, said.json["mode"], said.json["fell_back"]) == (0, "tcp", "the cluster file does not enable RDMA")


def test_more_gpus_than_a_node_has_is_reported_by_diff_and_deploy_and_touches_nothing(lab: Lab, gpuctl: Gpuctl) -> None:
    known, before = str(lab.plane.kubeconfig), lab.names()
    path = lab.path({"gpus": {"per_node": 16}})
    told = "it has 8 of the 16 nvidia.com/gpu that a pod requests"
    diff = gpuctl("cluster", "diff", path, KUBECONFIG=known)
    assert (diff.code, told in diff.out) == (1, True)
    refused = gpuctl("cluster", "deploy", path, KUBECONFIG=known)
    assert (refused.code, told in refused.err, "Traceback" in refused.err) == (3, True, False)
    assert lab.names() == before


def test_destroying_asks_and_without_a_terminal_wants_to_be_told(lab: Lab, gpuctl: Gpuctl) -> None:
    known = str(lab.plane.kubeconfig)
    before = lab.names()
    lab.deploy(nodes=1, limit_s=0)
    words = ("cluster", "destroy", lab.path())
    refused = gpuctl(*words, KUBECONFIG=known)
    assert (refused.code, "add --yes" in refused.err) == (2, True)
    assert len(lab.get("statefulsets")["items"]) == 1
    has_budget = lab.plane.serves("policy/v1", "poddisruptionbudgets")
    assert gpuctl(*words, "--check", "--volumes", KUBECONFIG=known).out.count("remove") == 9 + has_budget
    assert gpuctl(*words, "--volumes", "--yes", KUBECONFIG=known).code == 0
    assert lab.names() == before
    assert gpuctl(*words, KUBECONFIG=known).code == 0


def test_the_logs_of_all_pods_or_of_one_are_shown(lab: Lab, gpuctl: Gpuctl) -> None:
    known = str(lab.plane.kubeconfig)
    lab.deploy(nodes=2, limit_s=60)
    note = json.dumps(
        {"metadata": {"annotations": {"standin/log": "gpuctl: ready\n", "standin/previous-log": "gone\n"}}}
    )
    for name in ("lab-0", "lab-1"):
        lab.plane.kubectl("patch", "pod", name, "-n", lab.namespace, "--type=merge", "-p", note)
    both = gpuctl("cluster", "logs", lab.path(), KUBECONFIG=known)
    assert sorted(both.out.splitlines()) == ["lab-0  gpuctl: ready", "lab-1  gpuctl: ready"], both.err
    assert gpuctl("cluster", "logs", lab.path(), "--rank", "1", "--previous", KUBECONFIG=known).out == "gone\n"
    missing = gpuctl("cluster", "logs", lab.path(), "--rank", "7", KUBECONFIG=known)
    assert (missing.code, "lab has no pod lab-7" in missing.err) == (2, True)


def test_followed_logs_end_with_ctrl_c(lab: Lab, gpuctl: Gpuctl) -> None:
    lab.deploy(nodes=2, limit_s=60)
    note = json.dumps({"metadata": {"annotations": {"standin/log": "gpuctl: ready\n", "standin/running": "yes"}}})
    for name in ("lab-0", "lab-1"):
        lab.plane.kubectl("patch", "pod", name, "-n", lab.namespace, "--type=merge", "-p", note)
    running = gpuctl.start("cluster", "logs", lab.path(), "--follow", KUBECONFIG=str(lab.plane.kubeconfig))
    assert running.stdout is not None
    lines = sorted(running.stdout.readline() for _ in range(2))
    assert lines == ["lab-0  gpuctl: ready\n", "lab-1  gpuctl: ready\n"]
    running.send_signal(signal.SIGINT)
    said = gpuctl.said(running)
    assert (said.code, said.out) == (130, ""), said.err
    assert "could not be read" not in said.err
    assert "Traceback" not in said.err
    assert gpuctl.processes() == []


def test_a_field_that_somebody_set_is_taken_back_on_request_by_the_command_and_the_playbook(
    lab: Lab, gpuctl: Gpuctl
) -> None:
    def set_by_somebody() -> None:
        theirs = '{"spec":{"replicas":2}}'
        lab.plane.kubectl("patch", "statefulset", "lab", "-n", lab.namespace, "-p", theirs, "--field-manager=somebody")

    def replicas() -> int:
        return int(lab.get("statefulset", "lab")["spec"]["replicas"])

    told, path = "spec.replicas was set by somebody", lab.path()
    lab.deploy(nodes=1, limit_s=60)
    set_by_somebody()
    words = ("cluster", "deploy", path, "--nodes", "1", "--timeout", "60", "--yes")
    refused = gpuctl(*words, KUBECONFIG=str(lab.plane.kubeconfig))
    assert (refused.code, told in refused.err, "--take-over" in refused.err) == (3, True, True), refused.err
    assert replicas() == 2
    taken = gpuctl(*words, "--take-over", KUBECONFIG=str(lab.plane.kubeconfig))
    assert (taken.code, replicas(), "StatefulSet lab: taken over" in taken.err) == (0, 1, True), taken.err
    assert f"TAKE-OVER StatefulSet lab: {told}" in taken.out

    set_by_somebody()
    code, said = play(lab, cluster_file=path, cluster_nodes=1)
    assert (code, told in said, replicas()) == (2, True, 2), said
    code, said = play(lab, "--diff", cluster_file=path, cluster_nodes=1, cluster_take_over="true")
    assert (code, replicas(), "-spec.replicas: 2" in said, "+spec.replicas: 1" in said) == (0, 1, True, True), said
    code, said = play(lab, cluster_file=path, cluster_nodes=1)
    assert (code, "changed=0" in said) == (0, True), said


def test_the_token_of_jupyter_is_printed_only_on_request(lab: Lab, gpuctl: Gpuctl) -> None:
    known = str(lab.plane.kubeconfig)
    lab.deploy(nodes=1, limit_s=60)
    token = base64.b64decode(lab.get("secret", "lab")["data"]["jupyter-password"]).decode()
    status = gpuctl("cluster", "jupyter", lab.path(), "--output", "json", KUBECONFIG=known)
    assert token not in status.out + status.err
    assert json.loads(status.out)["verdict"] == "UNKNOWN"  # nobody can look into a stand-in's pod
    assert gpuctl("cluster", "jupyter", lab.path(), "--token", KUBECONFIG=known).out == f"{token}\n"
    refused = gpuctl("cluster", "jupyter", lab.path(), "--token", "-o", "json", KUBECONFIG=known)
    assert (refused.code, token in refused.out) == (2, False)
