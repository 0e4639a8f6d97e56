#!/usr/bin/python
"""Deploy or remove a multi-node ML environment on a Kubernetes or OpenShift cluster, by the gpuctl Python package."""

from __future__ import annotations

DOCUMENTATION = r"""
module: cluster
short_description: Deploy or remove an ML environment of a cluster file
description:
  - Applies the objects of a gpuctl cluster file to its cluster and waits until every pod is ready, or removes them;
    the same as C(gpuctl cluster deploy) and C(gpuctl cluster destroy).
  - A preflight checks the cluster first. If it fails, its findings are returned, and nothing is changed.
  - Objects are applied by server-side apply, not forced without O(take_over); an object of another owner with the same
    name is refused.
  - Runs on the machine with the kubeconfig, usually the controller.
options:
  cluster:
    description: The cluster file, by its name or path.
    type: str
    required: true
  folder:
    description:
      - The base of relative paths, of O(cluster) and of the environment variable C(KUBECONFIG), and of V(clusters/).
        The default is the module's working directory, with a local connection the playbook's folder.
    type: path
  state:
    description: Deploy or remove the environment.
    type: str
    choices: [present, absent]
    default: present
  mode:
    description:
      - The network between pods. V(auto) is RDMA, or TCP if the cluster lacks what RDMA needs.
      - The default keeps the deployed mode; for a new environment it is RDMA if the cluster file enables it.
    type: str
    choices: [rdma, tcp, auto]
  nodes:
    description: The number of pods. The default keeps the current number, else the cluster file's.
    type: int
  environment:
    description: The name of the environment. The default is from the cluster file.
    type: str
    default: ""
  single:
    description: A standalone pod, NAME-single, instead of a StatefulSet.
    type: bool
    default: false
  take_over:
    description: Set back fields of the environment's objects that somebody else changed.
    type: bool
    default: false
  recreate:
    description: Recreate objects whose immutable fields change. This ends their pods; volumes are never recreated.
    type: bool
    default: false
  volumes:
    description: With O(state=absent), remove the volumes too. Their data is lost.
    type: bool
    default: false
  timeout:
    description: Seconds to wait for the pods, or for the removal of a kind of object; 0 does not wait for pods.
    type: int
    default: 900
  context:
    description: The kubeconfig's context. The default is its current one.
    type: str
    default: ""
  actor:
    description: Who deploys it, for the objects' annotations. The default is the current user and machine.
    type: str
    default: ""
  plan:
    description:
      - The digest of a confirmed plan (C(digest) of a run in check mode). If the cluster or the file has changed since,
        so that the plan is another, the task fails and nothing is applied. The default applies the current plan.
    type: str
    default: ""
requirements:
  - gpuctl, the Python package, in the Python that the module runs with
author: The gpuctl authors
attributes:
  check_mode:
    description: Runs the preflight and the server's dry run; nothing is changed.
    support: full
  diff_mode:
    description: Every value that differs, without values of Secrets.
    support: full
"""

EXAMPLES = r"""
- name: Deploy an environment of four nodes
  gpuctl.fleet.cluster:
    cluster: clusters/h100.yaml
    mode: auto
    nodes: 4
  vars:
    ansible_python_interpreter: "{{ ansible_playbook_python }}" # the Python that has gpuctl

- name: Remove it, but keep its volumes
  gpuctl.fleet.cluster:
    cluster: h100
    state: absent
"""

RETURN = r"""
cluster:
  description:
    - The C(environment), its C(namespace), and with O(state=present) C(mode), C(nodes), C(fell_back) (why it is TCP).
    - With O(state=present), C(digest), the digest of the plan.
    - C(findings) of the preflight, each with C(check), C(subject), C(verdict), C(message) and C(hint).
    - C(changes), each with C(kind), C(name), C(action), C(fields) and C(note); C(applied), those that were made.
    - With O(state=absent), C(unread), why kinds of objects could not be listed; the task has then failed.
  returned: when the cluster could be reached
  type: dict
"""

import importlib.util
import json
import sys
from typing import Any

from ansible.module_utils.basic import AnsibleModule, missing_required_lib

ARGUMENTS: dict[str, Any] = {
    "cluster": {"type": "str", "required": True},
    "folder": {"type": "path"},
    "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
    "mode": {"type": "str", "choices": ["rdma", "tcp", "auto"]},
    "nodes": {"type": "int"},
    "environment": {"type": "str", "default": ""},
    "single": {"type": "bool", "default": False},
    "take_over": {"type": "bool", "default": False},
    "recreate": {"type": "bool", "default": False},
    "volumes": {"type": "bool", "default": False},
    "timeout": {"type": "int", "default": 900},
    "context": {"type": "str", "default": ""},
    "actor": {"type": "str", "default": ""},
    "plan": {"type": "str", "default": ""},
}


def main() -> None:
    module = AnsibleModule(argument_spec=ARGUMENTS, supports_check_mode=True)
    if importlib.util.find_spec("gpuctl") is None:
        module.fail_json(msg=missing_required_lib("gpuctl", reason="to deploy clusters"))
    # In a separate process: Ansible's module wrapper hides the collection that is installed with the package.
    request = json.dumps({**module.params, "check": module.check_mode})
    argv = [sys.executable, "-m", "gpuctl.cluster.deploy.module_main"]
    code, out, err = module.run_command(argv, data=request)
    answer = _answer(out)
    if answer is None:
        module.fail_json(msg=f"gpuctl ended with exit code {code}: {_last(err)}")
    if not module._diff:  # noqa: SLF001 - Ansible's modules have no other way to know
        answer.pop("diff", None)
    (module.fail_json if "msg" in answer else module.exit_json)(**answer)


def _answer(out: str) -> Any:
    try:
        answer = json.loads(out)
    except ValueError:
        return None
    return answer if isinstance(answer, dict) else None


def _last(err: str) -> str:
    lines = [line for line in err.splitlines() if line.strip()]
    return lines[-1] if lines else "no error output"


if __name__ == "__main__":
    main()
