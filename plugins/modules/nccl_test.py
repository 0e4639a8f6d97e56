#!/usr/bin/python
"""Run a test of nccl-tests from this node over others, and leave nothing of it behind."""

from __future__ import annotations

DOCUMENTATION = r"""
module: nccl_test
short_description: Run an NCCL test over several nodes by Open MPI
description:
  - Starts C(mpirun) with a program of nccl-tests on this node, as the user that Ansible logs in as, with the transport
    settings that keep MPI off the fabric, and returns all that was printed.
  - A run that has not ended within O(limit) is left as it stands, so that O(do=look) can tell who waits for whom on
    every node; O(do=end) then ends it there. Every process ends by itself half a minute after O(limit) at the latest.
  - The playbook gpuctl.fleet.nccl does the three one after the other; C(gpuctl nccl run) plans and judges such runs.
options:
  do:
    description: Run a test, look at the processes of one on this host, or end them.
    type: str
    choices: [run, look, end]
    default: run
  name:
    description: What the run is called; the same for its C(run), C(look) and C(end). Letters and digits.
    type: str
    required: true
  hosts:
    description: The nodes as they reach each other over ssh, this one first. A single one is run without mpirun.
    type: list
    elements: str
    default: []
  gpus:
    description: GPUs of each node.
    type: int
    default: 8
  program:
    description: The test's file name, looked for on the PATH and in the usual folders.
    type: str
    default: all_reduce_perf
  arguments:
    description:
      - Arguments of the test. Where C(-g) is not among them, one process takes all GPUs of a single node, and each GPU
        has a process of its own on several.
    type: list
    elements: str
    default: ["-b", "8", "-e", "8G", "-f", "2"]
  env:
    description: Environment of every rank.
    type: dict
    default: {"NCCL_DEBUG": "INFO"}
  limit:
    description: Seconds after which a run that has not ended hangs.
    type: int
    default: 600
  folders:
    description: Where nccl-tests and mpirun are looked for besides the PATH and the usual folders.
    type: list
    elements: str
    default: []
  as_root:
    description: Let mpirun run as root.
    type: bool
    default: false
  ssh_args:
    description: More arguments for the ssh between nodes.
    type: str
    default: ""
author: The gpuctl authors
attributes:
  check_mode:
    description: Starts and ends nothing; looking is done.
    support: partial
  diff_mode:
    description: Nothing of a host's settings is changed.
    support: none
notes:
  - The user needs ssh from this node to the others without a password. Never use C(become) for it.
  - Needs Python 3.9 and C(timeout) of the GNU core utilities on the hosts.
"""

EXAMPLES = r"""
- name: Run all_reduce over two nodes
  gpuctl.fleet.nccl_test:
    name: acceptance1
    hosts: [node-1, node-2]
    env: {NCCL_DEBUG: INFO, NCCL_ALGO: Ring}

- name: Leave nothing of it behind
  gpuctl.fleet.nccl_test:
    name: acceptance1
    do: end
"""

RETURN = r"""
nccl:
  description:
    - What was asked to be done, C(do).
    - Of C(run), C(text) (all that was printed) with C(code) or C(signal), how it ended, C(missing), the program that is
      not there, or C(late), where it has not ended.
    - Of C(look), C(found), the processes of the run, each with C(pid), C(name), C(state), C(rank) and C(still).
    - Of C(end), C(left), those that could not be ended.
  returned: always
  type: dict
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.gpuctl.fleet.plugins.module_utils.launch import mpirun_command, process_tree, start

ARGUMENTS: dict[str, Any] = {
    "do": {"type": "str", "choices": ["run", "look", "end"], "default": "run"},
    "name": {"type": "str", "required": True},
    "hosts": {"type": "list", "elements": "str", "default": []},
    "gpus": {"type": "int", "default": 8},
    "program": {"type": "str", "default": "all_reduce_perf"},
    "arguments": {"type": "list", "elements": "str", "default": ["-b", "8", "-e", "8G", "-f", "2"]},
    "env": {"type": "dict", "default": {"NCCL_DEBUG": "INFO"}},
    "limit": {"type": "int", "default": 600},
    "folders": {"type": "list", "elements": "str", "default": []},
    "as_root": {"type": "bool", "default": False},
    "ssh_args": {"type": "str", "default": ""},
}


def main() -> None:
    module = AnsibleModule(argument_spec=ARGUMENTS, supports_check_mode=True)
    params = module.params
    if not params["name"].isalnum():
        module.fail_json(msg=f"the name {params['name']!r} is not made of letters and digits")
    variable = f"{mpirun_command.VARIABLE}={params['name']}".encode()
    if params["do"] == "look":
        result: dict[str, Any] = {"found": process_tree.look(variable)}
    elif module.check_mode:
        result = {}
    elif params["do"] == "end":
        result = {"left": process_tree.end(variable)}
    else:
        result = run(params)
    result["do"] = params["do"]
    wrong = _wrong(result)
    (module.fail_json if wrong else module.exit_json)(changed=False, nccl=result, **({"msg": wrong} if wrong else {}))


def run(params: dict[str, Any]) -> dict[str, Any]:
    """Run it to its end or its limit."""
    return start.kept(request(params), params["limit"])


def request(params: dict[str, Any]) -> dict[str, Any]:
    """What the starter is asked for."""
    env = {name: str(value) for name, value in params["env"].items()}
    hosts, arguments = params["hosts"] or ["localhost"], params["arguments"]
    if not {"-g", "--ngpus"}.intersection(arguments):
        arguments = [*arguments, *mpirun_command.gpus_per_process(hosts, params["gpus"])]
    mpirun_request = mpirun_command.MpirunRequest(
        hosts, params["gpus"], arguments, list(env), params["limit"], params["as_root"], params["ssh_args"]
    )
    return {
        "argv": mpirun_command.full_command(mpirun_request),
        "env": mpirun_command.environment(env, params["name"]),
        "program": params["program"],
        "folders": params["folders"],
        "usual": mpirun_command.FOLDERS,
    }


def _wrong(result: dict[str, Any]) -> str:
    """Why the task failed; "" where it did not."""
    if "missing" in result:
        if "/" in result["missing"]:
            return f"there is no folder {result['missing']}"
        return f"{result['missing']} is neither on the PATH nor in the usual folders"
    if "late" in result:
        return "it has not ended within its limit"
    if result.get("left"):
        return f"{len(result['left'])} of its processes cannot be ended"
    return "" if result.get("code", 0) == 0 and "signal" not in result else "it failed; its text says why"


if __name__ == "__main__":
    main()
