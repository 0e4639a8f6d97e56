#!/usr/bin/python
"""Run a test of nccl-tests from this node over others, and end all its processes."""

from __future__ import annotations

DOCUMENTATION = r"""
module: nccl_test
short_description: Run an NCCL test over several nodes by Open MPI
description:
  - Starts C(mpirun) with a program of nccl-tests on this node, as the user of the Ansible connection, with settings
    that keep MPI itself off the fabric, and returns the output.
  - A run that exceeds O(limit) keeps running, so that O(do=look) can list its processes on every node to find out
    which ranks wait; O(do=end) then ends them. All processes end at the latest half a minute after O(limit).
  - The playbook gpuctl.fleet.nccl does all three in turn; C(gpuctl nccl run) plans and judges such runs.
options:
  do:
    description: Run a test, list its processes on this host, or end them.
    type: str
    choices: [run, look, end]
    default: run
  name:
    description: Name of the run, the same for its C(run), C(look) and C(end). Letters and digits.
    type: str
    required: true
  hosts:
    description: Names by which the nodes reach each other over ssh, this node first. One node runs without mpirun.
    type: list
    elements: str
    default: []
  gpus:
    description: Number of GPUs per node.
    type: int
    default: 8
  program:
    description: File name of the test, searched on the PATH and in the usual folders.
    type: str
    default: all_reduce_perf
  arguments:
    description:
      - Arguments of the test. Without C(-g), one process uses all GPUs of a single node; on several nodes there is
        one process per GPU.
    type: list
    elements: str
    default: ["-b", "8", "-e", "8G", "-f", "2"]
  env:
    description: Environment variables of every rank.
    type: dict
    default: {"NCCL_DEBUG": "INFO"}
  limit:
    description: Seconds after which a run counts as hanging.
    type: int
    default: 600
  folders:
    description: Folders to search for nccl-tests and mpirun first, before the PATH and the usual folders.
    type: list
    elements: str
    default: []
  as_root:
    description: Allow mpirun to run as root.
    type: bool
    default: false
  ssh_args:
    description: Additional arguments of ssh between the nodes.
    type: str
    default: ""
author: The gpuctl authors
attributes:
  check_mode:
    description: Starts and ends nothing; O(do=look) works as usual.
    support: partial
  diff_mode:
    description: No settings of a host are changed.
    support: none
notes:
  - The user needs ssh without a password from this node to the others. Never use C(become).
  - Needs Python 3.9 and C(timeout) of the GNU core utilities on the hosts.
"""

EXAMPLES = r"""
- name: Run all_reduce over two nodes
  gpuctl.fleet.nccl_test:
    name: acceptance1
    hosts: [node-1, node-2]
    env: {NCCL_DEBUG: INFO, NCCL_ALGO: Ring}

- name: End all its processes
  gpuctl.fleet.nccl_test:
    name: acceptance1
    do: end
"""

RETURN = r"""
nccl:
  description:
    - C(do), as in the request.
    - With O(do=run), C(text) (the output), and C(code), C(signal), or C(late) if it still runs; or C(missing), the
      program or folder that does not exist. With C(excess), it was stopped because it printed too much, and C(text) is
      the beginning.
    - With O(do=look), C(processes) of the run, each with C(pid), C(name), C(state), C(rank) and C(still).
    - With O(do=end), C(left), the processes that could not be ended.
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
        module.fail_json(msg=f"the name {params['name']!r} must consist of letters and digits")
    variable = f"{mpirun_command.VARIABLE}={params['name']}".encode()
    if params["do"] == "look":
        result: dict[str, Any] = {"processes": process_tree.observe(variable)}
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
    """Run until the test ends or exceeds its limit."""
    return start.run_captured(request(params), params["limit"])


def request(params: dict[str, Any]) -> dict[str, Any]:
    """The request for launch/start.py."""
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
    """Why the task failed; "" if it did not."""
    if "missing" in result:
        if "/" in result["missing"]:
            return f"there is no folder {result['missing']}"
        return f"{result['missing']} is neither on the PATH nor in the usual folders"
    if "excess" in result:
        return f"it printed more than {start.MOST_OUTPUT >> 20} MiB and was stopped"
    if "late" in result:
        return "it still runs after its limit"
    if result.get("left"):
        return f"{len(result['left'])} of its processes cannot be ended"
    return "" if result.get("code", 0) == 0 and "signal" not in result else "it failed; its output shows why"


if __name__ == "__main__":
    main()
