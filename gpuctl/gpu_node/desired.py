"""A plan as knobs for the engine (`gpuhost/kinds/gpu_stack.py`): what each part of the stack consists of on a host."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gpuctl.domain.findings import Finding, Verdict
from gpuctl.gpu_node import dkms_modules, nccl_tests, rdma, resolution
from gpuctl.gpu_node.model import Component, HostGpuFacts, StackPlan
from gpuctl.gpu_node.rows import Knowledge

KIND = "gpu_stack"
PARTS = ("driver", "fabric", "toolkit", "dcgm", "efa", "rdma", "nccl_tests")
NOUVEAU = "/etc/modprobe.d/gpuctl-nvidia.conf"
PIN = "/etc/apt/preferences.d/gpuctl-nvidia.pref"
MODULES = "/etc/modules-load.d/gpuctl-nvidia.conf"
RDMA_MODULES = "/etc/modules-load.d/gpuctl-rdma.conf"
IMEX_NODES = "/etc/nvidia-imex/nodes_config.cfg"
MARK = "# Written by gpuctl; `gpuctl rollback --only gpu_stack` takes it back.\n"
BLACKLIST = f"{MARK}blacklist nouveau\noptions nouveau modeset=0\nblacklist nova_core\nblacklist nova_drm\n"
# Services with a unit of their own; fabric manager's starts NVLSM.
UNITS = {"nvidia-fabricmanager": "nvidia-fabricmanager.service", "nvidia-imex": "nvidia-imex.service"}
CDI_REFRESH = "nvidia-cdi-refresh.path"
SOURCE = "gpuctl/data/gpu_stack"


def profile(knobs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Knobs in the form that the engine reads."""
    return {"name": KIND, "knobs": list(knobs), "overlays": []}


def refusal(reason: str, parts: Sequence[str] = PARTS) -> list[dict[str, Any]]:
    """Knobs of a host that must not be changed."""
    return [_knob(part, {"refused": reason} if part in parts else {}) for part in PARTS]


def knobs(made: StackPlan, facts: HostGpuFacts, known: Knowledge, parts: Sequence[str] = PARTS) -> list[dict[str, Any]]:
    """One knob for each part of the stack; parts that the site does not set, or that are not in `parts`, stay as they
    are. All parts of a refused plan are refused, with the reason.
    """
    if made.refused:
        return refusal(reason(made.findings), parts)
    values = {
        "driver": _driver(made, facts, known),
        "fabric": _fabric(made),
        "toolkit": _toolkit(made),
        "dcgm": _dcgm(made, known),
        "efa": _efa(made),
        "rdma": _rdma(made, known),
        "nccl_tests": _nccl_tests(made, parts),
    }
    return [_knob(part, (values[part] if part in parts else None) or {}) for part in PARTS]


def reason(findings: Sequence[Finding]) -> str:
    """Why a plan is refused, in one line."""
    worst = [finding for finding in findings if finding.verdict in {Verdict.FAIL, Verdict.UNKNOWN}]
    return "; ".join(dict.fromkeys(f"{finding.check}: {finding.message}" for finding in worst))


def _knob(part: str, value: Mapping[str, Any]) -> dict[str, Any]:
    return {"name": f"{KIND}.{part}", "value": dict(value), "why": f"the site's gpu_stack ({part})", "source": SOURCE}


def _component(made: StackPlan, name: str) -> Component | None:
    return next((part for part in made.components if part.name == name), None)


def _driver(made: StackPlan, facts: HostGpuFacts, known: Knowledge) -> dict[str, Any] | None:
    """Packages of the driver; dependencies of the whole transaction come with them."""
    component = _component(made, "driver")
    if component is None:
        return None
    rest = [part for part in made.components if part.name != "driver"]
    others = {name for part in rest for name in (*dict(part.versions), *part.removes)}
    resolved = made.installs or {}
    versions = {name: version for name, version in resolved.items() if name not in others}
    asked = (_name(spec, resolved) for spec in made.packages)
    named = [*dict.fromkeys([*(name for name, _ in component.versions), *asked])]
    removes = [name for name in made.removes or {} if name not in resolved and name not in others]
    return {
        "shown": f"{made.driver}, {made.flavour.value} module",
        "versions": {**versions, **dict(component.versions)},
        "named": [name for name in named if name not in others],
        "removes": removes,
        "holds": list(made.holds),
        "repositories": repositories(made, "cuda"),
        "files": {NOUVEAU: BLACKLIST, **_pins(made, facts, known), **keys(made, "cuda")},
        "driver": made.driver,
        **_earlier(component, made, facts),
    }


def _pins(made: StackPlan, facts: HostGpuFacts, known: Knowledge) -> dict[str, str]:
    """The file of apt's preferences; dnf has locks instead, which the host's side sets with the packages."""
    by_apt = any(row.manager == "apt" and facts.distribution in row.distributions for row in known.sets)
    return {PIN: f"{MARK}{resolution.pins(made.driver)}"} if by_apt else {}


def repositories(made: StackPlan, start: str) -> dict[str, str]:
    """Files of the repositories to add whose name starts so."""
    return {row.file: row.text for row in made.additions if row.name.startswith(start)}


def keys(made: StackPlan, start: str) -> dict[str, str]:
    """Files of their keys."""
    return {row.key_file: row.key for row in made.additions if row.name.startswith(start)}


def _name(spec: str, resolved: Mapping[str, str]) -> str:
    """The package of NAME=VERSION, as apt takes it, or of NAME-VERSION, as dnf does."""
    return next((name for name, version in resolved.items() if spec == f"{name}-{version}"), spec.partition("=")[0])


def _earlier(component: Component, made: StackPlan, facts: HostGpuFacts) -> dict[str, list[str]]:
    """Packages that change or go, and whose present version is in no repository of the host, or was not looked up."""
    removes, offers = made.removes or {}, facts.offers or {}
    present = {**(facts.packages or {}), **removes}
    names = [name for name in dict.fromkeys([*dict(component.versions), *removes]) if name in present]
    gone = [name for name in names if name in offers and present[name] not in offers[name]]
    return {"earlier": gone, "unasked": [name for name in names if name not in offers]}


def _fabric(made: StackPlan) -> dict[str, Any] | None:
    """Fabric services run; their packages are in the driver's set, as they have its version."""
    if not made.services:
        return None
    units = [UNITS[name] for name in made.services if name in UNITS]
    files = {MODULES: f"{MARK}{''.join(f'{name}{chr(10)}' for name in made.modules)}"} if made.modules else {}
    if made.imex_nodes:
        files[IMEX_NODES] = "".join(f"{address}\n" for address in made.imex_nodes)
    # Before the new driver runs, the services cannot: they start with the host.
    return {"shown": made.fabric.value, "units": units, "files": files, "start": made.reboot is False}


def _toolkit(made: StackPlan) -> dict[str, Any] | None:
    component = _component(made, "container toolkit")
    if component is None:
        return None
    added = {"repositories": repositories(made, "toolkit"), "files": keys(made, "toolkit")}
    return {**_of(component), **added, "units": [CDI_REFRESH], "runtimes": True}


def _dcgm(made: StackPlan, known: Knowledge) -> dict[str, Any] | None:
    component = _component(made, "dcgm")
    if component is None:
        return None
    names = {name for name, _ in component.versions}
    units = [row.unit for row in known.dcgm if names == set(row.packages)]
    return {**_of(component), "units": units, "removes": list(component.removes), "start": made.reboot is not True}


def _efa(made: StackPlan) -> dict[str, Any] | None:
    """EFA's installer is no package: it comes in a signed archive."""
    component = _component(made, "efa")
    if component is None:
        return None
    is_minimal = made.efa_kind == "minimal"
    source = {"uri": made.efa_uri, "fingerprints": list(made.efa_keys)}
    wanted = {"version": component.desired, "minimal": is_minimal, **source}
    return {"shown": f"{component.desired} {made.efa_kind}", "efa": wanted}


def _rdma(made: StackPlan, known: Knowledge) -> dict[str, Any] | None:
    """Packages of GDRCopy and GDS, and the modules that are loaded now and at boot, ib_core first."""
    waits = dict(made.waits)
    names = (rdma.PEER_MEMORY, dkms_modules.GDRCOPY, dkms_modules.GDS)
    peers, copies, storage = (None if name in waits else _component(made, name) for name in names)
    if (peers, copies, storage) == (None, None, None):
        return None
    modules = ["ib_core", rdma.PEERMEM] if peers and rdma.has_path(peers, rdma.PEERMEM) else []
    shown = [peers.desired] if peers else []
    packages: dict[str, Any] = {}
    built = {}
    for part, label, row in ((copies, "GDRCopy", known.gdrcopy[0]), (storage, "GDS", known.gds[0])):
        if part is not None:
            modules.append(row.module)
            shown.append(f"{label} {part.desired}")
            built[row.module] = dkms_modules.module_version(part)
            packages = _together(packages, _of(part))
    if packages and _component(made, "driver") is None:
        others = {name for part in made.components for name in (*dict(part.versions), *part.removes)}
        rest = {name: version for name, version in (made.installs or {}).items() if name not in others}
        packages["versions"] = {**rest, **packages["versions"]}
    text = f"{MARK}{''.join(f'{name}{chr(10)}' for name in modules)}" if modules else None
    # Beside a driver that waits for its reboot, the modules cannot be loaded: they are at boot.
    more = {"files": {RDMA_MODULES: text}, "built": built, "modules": modules, "start": made.reboot is False}
    return {**packages, "shown": ", ".join(shown), **more}


def _together(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    """Packages of two components in one part."""
    if not first:
        return dict(second)
    lists = {key: [*first[key], *second[key]] for key in ("named", "holds")}
    return {**second, **lists, "versions": {**first["versions"], **second["versions"]}}


def _nccl_tests(made: StackPlan, parts: Sequence[str]) -> dict[str, Any] | None:
    component = _component(made, nccl_tests.NAME)
    if component is None:
        return None
    event = dict(made.waits).get(component.name)
    if event is not None:
        # With other parts it is left out, as a refusal would stop their roll-out before its reboot; verify fails it.
        is_alone = tuple(parts) == ("nccl_tests",)
        return {"refused": event} if is_alone and event.startswith(nccl_tests.LACKS) else None
    return {"shown": component.desired, "nccl_tests": dict(made.nccl_tests)}


def _of(component: Component) -> dict[str, Any]:
    names = [name for name, _ in component.versions]
    return {"shown": component.desired, "versions": dict(component.versions), "named": names, "holds": names}
