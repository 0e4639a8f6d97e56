"""The module nccl_test: what it asks the starter for."""

from __future__ import annotations

from typing import Any

from ansible_collections.gpuctl.fleet.plugins.module_utils.launch import mpirun_command
from ansible_collections.gpuctl.fleet.plugins.modules import nccl_test


def asked(**given: Any) -> dict[str, Any]:
    defaults = {name: option.get("default") for name, option in nccl_test.ARGUMENTS.items()}
    return {**defaults, "name": "x1", **given}


def test_a_single_host_is_one_process_with_all_its_gpus() -> None:
    argv = nccl_test.request(asked(hosts=["h1"], gpus=4))["argv"]
    assert argv[:1] == ["timeout"]
    assert argv[-2:] == ["-g", "4"]
    assert nccl_test.request(asked())["argv"][-2:] == ["-g", "8"]


def test_on_several_hosts_each_gpu_has_a_process() -> None:
    argv = nccl_test.request(asked(hosts=["h1", "h2"], gpus=4))["argv"]
    assert argv[:5] == ["mpirun", "--host", "h1:4,h2:4", "-n", "8"]
    assert argv[-2:] == ["-g", "1"]


def test_what_the_user_says_of_gpus_stays() -> None:
    assert nccl_test.request(asked(hosts=["h1"], arguments=["-g", "2"]))["argv"][-3:] == ["{program}", "-g", "2"]


def test_mpi_keeps_to_networks_that_lead_from_node_to_node_unless_the_user_says_otherwise() -> None:
    ours = mpirun_command.mpirun(mpirun_command.MpirunRequest(["h1", "h2"], 1, [], [], 60))
    theirs = mpirun_command.mpirun(
        mpirun_command.MpirunRequest(["h1", "h2"], 1, [], ["OMPI_MCA_btl_tcp_if_exclude"], 60)
    )
    assert "docker0" in ours[ours.index("btl_tcp_if_exclude") + 1].split(",")
    assert "btl_tcp_if_exclude" not in theirs
    assert ours[ours.index("pml") + 1] == theirs[theirs.index("pml") + 1] == "ob1"
