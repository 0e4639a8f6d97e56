"""The one door from the package to the collection's engine: a name is imported from its module when it is first used.

Everything else in gpuctl imports these names from here. Only programs that run in pods use the real module names, as
those are the names they carry there.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ansible_collections.gpuctl.fleet.plugins.module_utils import gpuhost, launch
    from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost import api as gpuhost_api
    from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost import bounds
    from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost import gpus as gpuhost_gpus
    from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost import host as gpuhost_host
    from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.acts import gpu_sessions
    from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.facts import answer_types as fact_types
    from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.facts import gpu_use, gpu_xml, lustre, nvlink
    from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.module import INCOMPLETE_HINT, INCOMPLETE_RECORD
    from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.topology import cpus_of
    from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.verdict import failures, needs_reboot
    from ansible_collections.gpuctl.fleet.plugins.module_utils.launch import answer_types as launch_answers
    from ansible_collections.gpuctl.fleet.plugins.module_utils.launch import mpirun_command
    from ansible_collections.gpuctl.fleet.plugins.module_utils.launch.mpirun_command import (
        MpirunRequest,
        full_command,
        gpus_per_process,
    )
    from ansible_collections.gpuctl.fleet.plugins.module_utils.progress import PIPE, report_progress
    from ansible_collections.gpuctl.fleet.plugins.module_utils.workstation.model import MISSING
    from ansible_collections.gpuctl.fleet.plugins.plugin_utils import (
        answers,
        gpu_settings,
        kubelet_resources,
        profiles,
        slurm_gres,
        typed_json,
        visit_failures,
    )
    from ansible_collections.gpuctl.fleet.plugins.plugin_utils.memory_guard import TooMuchMemoryError, bounded_memory
    from ansible_collections.gpuctl.fleet.plugins.plugin_utils.payload import (
        CHANGE,
        any_python,
        python_arguments,
        script,
    )
    from ansible_collections.gpuctl.fleet.plugins.plugin_utils.printable import printable

__all__ = [
    "CHANGE",
    "INCOMPLETE_HINT",
    "INCOMPLETE_RECORD",
    "MISSING",
    "PIPE",
    "MpirunRequest",
    "TooMuchMemoryError",
    "answers",
    "any_python",
    "bounded_memory",
    "bounds",
    "cpus_of",
    "fact_types",
    "failures",
    "full_command",
    "gpu_sessions",
    "gpu_settings",
    "gpu_use",
    "gpu_xml",
    "gpuhost",
    "gpuhost_api",
    "gpuhost_gpus",
    "gpuhost_host",
    "gpus_per_process",
    "kubelet_resources",
    "launch",
    "launch_answers",
    "lustre",
    "mpirun_command",
    "needs_reboot",
    "nvlink",
    "printable",
    "profiles",
    "python_arguments",
    "report_progress",
    "script",
    "slurm_gres",
    "typed_json",
    "visit_failures",
]

PLUGINS = "ansible_collections.gpuctl.fleet.plugins"
MODULES = {
    "bounds": "module_utils.gpuhost.bounds",
    "fact_types": "module_utils.gpuhost.facts.answer_types",
    "gpu_sessions": "module_utils.gpuhost.acts.gpu_sessions",
    "gpu_use": "module_utils.gpuhost.facts.gpu_use",
    "gpu_xml": "module_utils.gpuhost.facts.gpu_xml",
    "gpuhost": "module_utils.gpuhost",
    "gpuhost_api": "module_utils.gpuhost.api",
    "gpuhost_gpus": "module_utils.gpuhost.gpus",
    "gpuhost_host": "module_utils.gpuhost.host",
    "lustre": "module_utils.gpuhost.facts.lustre",
    "nvlink": "module_utils.gpuhost.facts.nvlink",
    "launch": "module_utils.launch",
    "launch_answers": "module_utils.launch.answer_types",
    "mpirun_command": "module_utils.launch.mpirun_command",
    "answers": "plugin_utils.answers",
    "gpu_settings": "plugin_utils.gpu_settings",
    "kubelet_resources": "plugin_utils.kubelet_resources",
    "slurm_gres": "plugin_utils.slurm_gres",
    "profiles": "plugin_utils.profiles",
    "typed_json": "plugin_utils.typed_json",
    "visit_failures": "plugin_utils.visit_failures",
}
HOMES = {
    **dict.fromkeys(("MpirunRequest", "full_command", "gpus_per_process"), "module_utils.launch.mpirun_command"),
    **dict.fromkeys(("PIPE", "report_progress"), "module_utils.progress"),
    **dict.fromkeys(("CHANGE", "any_python", "python_arguments", "script"), "plugin_utils.payload"),
    **dict.fromkeys(("TooMuchMemoryError", "bounded_memory"), "plugin_utils.memory_guard"),
    "printable": "plugin_utils.printable",
    **dict.fromkeys(("failures", "needs_reboot"), "module_utils.gpuhost.verdict"),
    **dict.fromkeys(("INCOMPLETE_HINT", "INCOMPLETE_RECORD"), "module_utils.gpuhost.module"),
    "MISSING": "module_utils.workstation.model",
    "cpus_of": "module_utils.gpuhost.topology",
}


def __getattr__(name: str) -> Any:
    if name in MODULES:
        value = import_module(f"{PLUGINS}.{MODULES[name]}")
    elif name in HOMES:
        value = getattr(import_module(f"{PLUGINS}.{HOMES[name]}"), name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value
