"""Facts that decide a GPU host's software stack: GPUs, fabric, kernel, Secure Boot, packages and modules."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from .. import model, nccl_tests
from ..efa import state as efa
from ..host import Host, Result
from ..remembered import Remembered
from ..resources import deb, lock, rpm
from ..resources.module import module_info
from . import additions, cdi, gds, gpu_xml, package_lists, peer_memory, repositories
from . import busy as jobs

if TYPE_CHECKING:
    from .answer_types import StackCdi

PCI = "/sys/bus/pci/devices"
NVIDIA, MELLANOX, AMAZON = "0x10de", "0x15b3", "0x1d0f"
SECURE_BOOT = "/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
MOK_KEYS = ("/var/lib/shim-signed/mok/MOK.der", "/var/lib/dkms/mok.pub")
FOREIGN = ("nouveau", "nova_core", "nova_drm")
MODULE = "/proc/driver/nvidia/version"
INFINIBAND = "/sys/class/infiniband"
PEER_SYMBOL = "ib_register_peer_memory_client"  # of ib_core, where it has the interface
LIMIT_S = 60.0  # eight GPUs without persistence mode take ten seconds and more
# Rebuilds of RHEL, for which NVIDIA's packages are the same.
REBUILDS = {"rocky": "rhel", "almalinux": "rhel", "centos": "rhel", "ol": "rhel"}
_CONCERNS = re.compile(
    r"nvidia|cuda|^nvlsm$|nvsdm|nvidia-imex|^datacenter-gpu|^efa|^libfabric|^infiniband-diags$|^gdrdrv|^libgdrapi|^linux-(image|headers)-|^kernel"
)
_OF_DRIVER = re.compile(r"nvidia|^cuda-drivers|^libcuda1$|^libnvsdm|^datacenter-gpu")
_SMI_GPU = re.compile(r"^GPU \d+: ", re.MULTILINE)


class Unreadable(Exception):
    """A fact that cannot be read; the message is its reason."""


def read(host: Host, request: Mapping[str, Any]) -> dict[str, Any]:
    """One key for each of READERS, and `unread`: name -> reason. A value that could not be read is None.

    The keys are the fields of `HostGpuFacts` in `gpuctl/gpu_node/model.py`. `smi_gpus` is None without a loaded
    module, `mok_enrolled` without Secure Boot, `efa_kind` without a record, `peer_symbols` without ib_core;
    then they have no reason. `efa_module`, `gdrdrv_module` and `nvidia_fs_module` are "" without the module. Request:
    `look_up`, names of packages whose versions in the repositories are read; `sources`, repositories that count as
    well, see `additions.read`; `nccl_tests`, the `version` to build or the `folder` to check, without which `compute`
    and `nccl_tests_lacks` are empty.
    """
    facts: dict[str, Any] = {}
    unread: dict[str, str] = {}
    look_up = [str(name) for name in request.get("look_up", ())]
    tests = request.get("nccl_tests") or {}
    wanted = {"look_up": look_up, "sources": request.get("sources", ()), "nccl_tests_request": tests, "read once": {}}
    host = Remembered(host)
    for name, reader in READERS.items():
        try:
            facts[name] = reader(host, {**wanted, **facts})
        except Unreadable as error:
            facts[name], unread[name] = None, str(error)
        except OSError as error:
            facts[name], unread[name] = None, f"{error.filename}: {error.strerror}"
    return {**facts, "unread": unread}


def _reason(program: str, result: Result) -> str:
    """The last line of a program that failed, with its name once."""
    line = result.last_line
    return line if line.startswith(program) else f"{program}: {line}"


def _bus(host: Host, vendor: str, of_class: str = "") -> list[str]:
    """Addresses of a vendor's devices whose class begins so."""
    if not host.exists(PCI):
        raise Unreadable(f"{PCI} is missing")
    devices = [address for address in host.listdir(PCI) if _number(host, f"{PCI}/{address}/vendor") == vendor]
    return [address for address in devices if _number(host, f"{PCI}/{address}/class").startswith(of_class)]


def _value(host: Host, path: str, form: str = r"\S+") -> str:
    """A kernel file's value; Unreadable if it is missing, or not of this form."""
    text = host.value(path)
    if text is None or not re.fullmatch(form, text):
        raise Unreadable(f"{path} is missing" if text is None else f"{path} has no such value: {text[:40]!r}")
    return text


def _number(host: Host, path: str) -> str:
    """A value in hexadecimal digits, in lower case, with its 0x."""
    return _value(host, path, "0x[0-9A-Fa-f]+").lower()


def _id(host: Host, address: str, name: str) -> str | None:
    """Four hexadecimal digits of an id of the device; None if the device has no such file."""
    path = f"{PCI}/{address}/{name}"
    return _number(host, path)[2:] if host.exists(path) else None


def _gpus(host: Host, facts: Mapping[str, Any]) -> list[dict[str, str | None]]:
    return [
        {
            "address": address,
            "device": _number(host, f"{PCI}/{address}/device")[2:],
            "subvendor": _id(host, address, "subsystem_vendor"),
            "subdevice": _id(host, address, "subsystem_device"),
        }
        for address in _bus(host, NVIDIA, "0x03")
    ]


def _nvswitches(host: Host, facts: Mapping[str, Any]) -> list[str]:
    return [_number(host, f"{PCI}/{address}/device")[2:] for address in _bus(host, NVIDIA, "0x0680")]


def _infiniband_vpd(host: Host, facts: Mapping[str, Any]) -> list[str]:
    """Printable parts of the adapters' VPD, which the bus has without their driver; virtual functions have none."""
    texts = (host.read_or_none(f"{PCI}/{address}/vpd") for address in _bus(host, MELLANOX, "0x02"))
    return [" ".join(re.findall(r"[ -~]{3,}", text)) for text in texts if text is not None]


def _efa_devices(host: Host, facts: Mapping[str, Any]) -> list[str]:
    return [a for a in _bus(host, AMAZON) if _number(host, f"{PCI}/{a}/device").startswith("0xefa")]


def _kernel(host: Host, facts: Mapping[str, Any]) -> str:
    return _value(host, "/proc/sys/kernel/osrelease", r"[\w.+~-]+")


def _headers(host: Host, facts: Mapping[str, Any]) -> bool:
    if facts["kernel"] is None:
        raise Unreadable("the running kernel is unknown")
    return host.exists(f"/lib/modules/{facts['kernel']}/build/Makefile")


def _secure_boot(host: Host, facts: Mapping[str, Any]) -> bool:
    if not host.exists("/sys/firmware"):
        raise Unreadable("/sys/firmware is missing")
    if not host.exists("/sys/firmware/efi"):
        return False
    text = host.read_or_none(SECURE_BOOT)
    # Four bytes of attributes, and one of the value.
    if text is None or not re.fullmatch(r".{4}[\x00\x01]", text, re.DOTALL):
        raise Unreadable(f"{SECURE_BOOT} is {'missing' if text is None else 'not understood'}")
    return text[-1] == "\x01"


def _mok_enrolled(host: Host, facts: Mapping[str, Any]) -> bool | None:
    if not facts["secure_boot"]:
        return None
    for path in (path for path in MOK_KEYS if host.exists(path)):
        result = host.run("mokutil", "--test-key", host.real(path), limit=10)
        if "is already enrolled" in result.out:
            return True
        if "is not enrolled" not in result.out:
            raise Unreadable(_reason("mokutil", result))
    return False


def _distribution(host: Host, facts: Mapping[str, Any]) -> str:
    text = host.read_or_none("/etc/os-release") or host.read_or_none("/usr/lib/os-release") or ""
    release = {name: value.strip("\"' \n") for name, _, value in (line.partition("=") for line in text.splitlines())}
    name, version = release.get("ID", ""), release.get("VERSION_ID", "")
    if not name or not version:
        raise Unreadable("os-release has no ID or VERSION_ID")
    name = REBUILDS.get(name, name)
    return name + (version if name == "ubuntu" else version.partition(".")[0])


def _packages(host: Host, facts: Mapping[str, Any]) -> dict[str, str]:
    """Installed packages that concern the stack; several versions of one, such as kernels of RHEL, are the last."""
    if host.which("dpkg-query"):
        # Those of another architecture are no part of the driver's set; apt changes them with theirs.
        debs = {name: deb.version_of(text) for name, text in _debs(host).items() if ":" not in name}
        return {name: version for name, version in debs.items() if version and _CONCERNS.search(name)}
    result = host.run("rpm", "-qa", "--qf", "%{NAME} %{EPOCHNUM}:%{VERSION}-%{RELEASE} installed\n")
    if not result.ok:
        raise Unreadable(result.last_line)
    rows = [line.split() for line in result.out.splitlines()]
    if not rows or not all(2 <= len(row) <= 3 and re.fullmatch("[a-z-]+", row[-1]) for row in rows):
        raise Unreadable("the package manager's list is not understood")  # a package that is not installed has 2 cells
    installed = (row for row in rows if len(row) == 3 and row[2] == "installed" and _CONCERNS.search(row[0]))
    return {name: re.sub(r"^0:", "", version) for name, version, _ in installed}


def _debs(host: Host) -> Mapping[str, str]:
    try:
        known = deb.every_state(host)
    except model.Unreadable as error:
        raise Unreadable(str(error)) from error
    if not known:
        raise Unreadable("the package manager's list is not understood")
    return known


def _interrupted(host: Host, facts: Mapping[str, Any]) -> list[str]:
    """Packages that dpkg or rpm has left half done."""
    if not host.which("dpkg-query") and not host.which("rpm"):
        raise Unreadable("neither dpkg nor rpm is on this host")
    try:
        return deb.interrupted(host) if host.which("dpkg-query") else interrupted_rpms(host)
    except model.Unreadable as error:
        raise Unreadable(str(error)) from error


def interrupted_rpms(host: Host) -> list[str]:
    """Packages that gpuctl's run left half done, and those of the stack that another program left in two versions."""
    return sorted({*rpm.unfinished(host), *(name for name in rpm.duplicates(host) if _CONCERNS.search(name))})


def _holds(host: Host, facts: Mapping[str, Any]) -> list[str]:
    if host.which("dpkg-query"):
        # `apt-mark showhold` builds apt's cache of all package lists first; beside these it prints packages that were
        # held without ever being installed.
        _debs(host)
        return sorted(deb.holds(host))
    if not host.which("dnf"):
        raise Unreadable("neither dpkg-query nor dnf is on this host")
    try:
        lines = (host.read_or_none(lock.place(host)) or "").splitlines()
    except model.Unreadable as error:
        raise Unreadable(str(error)) from error
    return [line.strip() for line in lines if line.strip() and not line.startswith("#")]


def _pins(host: Host, facts: Mapping[str, Any]) -> list[str]:
    """Files of apt's preferences that name NVIDIA's packages or repositories."""
    paths = ["/etc/apt/preferences", *host.glob("/etc/apt/preferences.d/*")]
    return [path for path in paths if re.search("nvidia|cuda", host.read_or_none(path) or "", re.IGNORECASE)]


def _running_module(host: Host, facts: Mapping[str, Any]) -> str:
    if not host.exists("/sys/module"):
        raise Unreadable("/sys/module is missing")
    if not host.exists("/sys/module/nvidia") and not host.exists(MODULE):
        return ""
    match = re.search(r"Kernel Module.*?\s(\d+\.\d+(?:\.\d+)?)\s", host.read_or_none(MODULE) or "")
    return match.group(1) if match else _value(host, "/sys/module/nvidia/version", r"\d+(\.\d+)+")


def _running_open(host: Host, facts: Mapping[str, Any]) -> bool | None:
    text = host.read_or_none(MODULE)
    if not facts["running_module"]:
        return None
    if not text:
        raise Unreadable(f"{MODULE} is missing")
    return "Open Kernel Module" in text


def _modinfo(host: Host, facts: Mapping[str, Any], field: str) -> str:
    """A field of the module for the running kernel; "" if no module is installed."""
    if facts["kernel"] is None:
        raise Unreadable("the running kernel is unknown")
    try:
        return module_info(host, facts["kernel"], field)
    except model.Unreadable as error:
        raise Unreadable(str(error)) from error


def _installed_module(host: Host, facts: Mapping[str, Any]) -> str:
    return _modinfo(host, facts, "version")


def _installed_open(host: Host, facts: Mapping[str, Any]) -> bool | None:
    """The open module has a licence that names MIT or GPL, the proprietary one "NVIDIA"."""
    text = _modinfo(host, facts, "license")
    return None if not text else "GPL" in text or "MIT" in text


def _foreign_modules(host: Host, facts: Mapping[str, Any]) -> list[str]:
    if not host.exists("/sys/module"):
        raise Unreadable("/sys/module is missing")
    return [name for name in FOREIGN if host.exists(f"/sys/module/{name}")]


def _smi_gpus(host: Host, facts: Mapping[str, Any]) -> int | None:
    if not facts["running_module"]:
        return None
    result = host.run("nvidia-smi", "-L", limit=LIMIT_S)
    if not result.ok:
        raise Unreadable(gpu_xml.mismatch(f"{result.out}\n{result.err}") or _reason("nvidia-smi", result))
    return len(_SMI_GPU.findall(result.out))


def _busy(host: Host, facts: Mapping[str, Any]) -> list[str]:
    return jobs.busy(host)


def _repositories(host: Host, facts: Mapping[str, Any]) -> list[dict[str, Any]]:
    if not package_lists.manager(host):
        raise Unreadable("neither apt-get nor dnf is on this host")
    return repositories.repositories(host)


def _keys(host: Host, facts: Mapping[str, Any]) -> list[dict[str, str]]:
    if facts["repositories"] is None:
        raise Unreadable("the repositories could not be read")
    try:
        return repositories.keys(host, facts["repositories"])
    except repositories.BadKey as error:
        raise Unreadable(str(error)) from error


def _additions(host: Host, facts: Mapping[str, Any]) -> list[dict[str, Any]]:
    rows = facts["sources"]
    known = (facts["distribution"], facts["architecture"], facts["repositories"])
    if rows and None in known:
        raise Unreadable("the distribution or the repositories could not be read")
    present = [row["uri"] for row in facts["repositories"] or ()]
    return additions.read(host, rows, facts["distribution"], facts["architecture"], present) if rows else []


def _offers(host: Host, facts: Mapping[str, Any]) -> dict[str, list[str]]:
    if facts["kernel"] is None:
        raise Unreadable("the running kernel is unknown")
    if not package_lists.manager(host):
        raise Unreadable("neither apt-get nor dnf is on this host")
    # Versions to which undo returns, also of packages of other names that a change removes.
    present = [name for name in facts["packages"] or () if _OF_DRIVER.search(name)]
    names = [*facts["look_up"], *(present if package_lists.manager(host) == "apt" else ())]
    usable = [row for row in facts["additions"] or () if not row["wrong"]]
    with additions.apt_with(host, usable) as options:
        return package_lists.offered(host, names if facts["look_up"] else (), facts["kernel"], options)


def _lists_age_days(host: Host, facts: Mapping[str, Any]) -> int:
    age = package_lists.age_days(host, time.time())
    if age is None and any(not row["wrong"] for row in facts["additions"] or ()):
        return 0  # those of the repositories to add have just been fetched
    if age is None:
        raise Unreadable("the host has no package lists")
    return age


def _efa_state(host: Host, facts: Mapping[str, Any]) -> efa.State:
    """The state, read once for the three facts that are parts of it."""
    known: dict[str, efa.State] = facts["read once"]
    if "efa" not in known:
        try:
            known["efa"] = efa.read(host)
        except model.Unreadable as error:
            raise Unreadable(str(error)) from error
    return known["efa"]


def _efa_installed(host: Host, facts: Mapping[str, Any]) -> str:
    """Version of the EFA installer that ran last, as it recorded it; "" if none has."""
    return _efa_state(host, facts).version


def _efa_kind(host: Host, facts: Mapping[str, Any]) -> str | None:
    """full or minimal; None without a record."""
    whole = _efa_state(host, facts).whole
    return whole.partition(" ")[2] if whole else None


def _efa_wrong(host: Host, facts: Mapping[str, Any]) -> list[str]:
    """Why EFA is half installed, or has no module for the running kernel."""
    return list(_efa_state(host, facts).wrong)


def _rdma_drivers(host: Host, facts: Mapping[str, Any]) -> list[str]:
    """Drivers of the RDMA devices, each once; [] for a host without such devices."""
    if not host.exists("/sys/class"):
        raise Unreadable("/sys/class is missing")
    devices = host.listdir(INFINIBAND) if host.exists(INFINIBAND) else []
    return sorted({_driver_of(host, f"{INFINIBAND}/{name}/device/uevent") for name in devices})


def _driver_of(host: Host, path: str) -> str:
    match = re.search(r"^DRIVER=(\S+)$", host.read_or_none(path) or "", re.MULTILINE)
    if match is None:
        raise Unreadable(f"{path} names no driver")
    return match[1]


def _peer_modules(host: Host, facts: Mapping[str, Any]) -> list[str]:
    modules = peer_memory.read(host, {})["modules"]
    if modules is None:
        raise Unreadable("/sys/module is missing")
    return modules


def _peer_symbols(host: Host, facts: Mapping[str, Any]) -> bool | None:
    """Whether ib_core has the interface for peer memory, which nvidia_peermem needs; None if it is not loaded."""
    if not host.exists("/sys/module"):
        raise Unreadable("/sys/module is missing")
    if not host.exists("/sys/module/ib_core"):
        return None
    if not host.exists("/proc/kallsyms"):
        raise Unreadable("/proc/kallsyms is missing")
    result = host.run("grep", "-c", "-w", "-m", "1", PEER_SYMBOL, host.real("/proc/kallsyms"), limit=10)
    if result.out.strip() not in ("0", "1"):
        raise Unreadable(_reason("grep", result))
    return result.out.strip() == "1"


def _efa_module(host: Host, facts: Mapping[str, Any]) -> str:
    """Version of the loaded efa module; "" for that of the kernel's tree, which has none, or if it is not loaded."""
    if not host.exists("/sys/module"):
        raise Unreadable("/sys/module is missing")
    path = "/sys/module/efa/version"
    return _value(host, path) if host.exists(path) else ""


def _gdrdrv_module(host: Host, facts: Mapping[str, Any]) -> str:
    return _loaded(host, "gdrdrv")


def _nvidia_fs_module(host: Host, facts: Mapping[str, Any]) -> str:
    return _loaded(host, "nvidia_fs")


def _gdscheck_lacks(host: Host, facts: Mapping[str, Any]) -> str:
    return gds.hindrance(host)


def _loaded(host: Host, module: str) -> str:
    """Version of a loaded module; "" if it is not loaded."""
    if not host.exists("/sys/module"):
        raise Unreadable("/sys/module is missing")
    return _value(host, f"/sys/module/{module}/version") if host.exists(f"/sys/module/{module}") else ""


def _gdrdrv_device(host: Host, facts: Mapping[str, Any]) -> bool:
    if not host.exists("/dev"):
        raise Unreadable("/dev is missing")
    return host.exists("/dev/gdrdrv")


def _compute(host: Host, facts: Mapping[str, Any]) -> list[str]:
    """Compute capabilities of the GPUs, for a request that builds for them."""
    if not facts["nccl_tests_request"].get("version"):
        return []
    try:
        return list(nccl_tests.compute_capabilities(host))
    except model.Unreadable as error:
        raise Unreadable(str(error)) from error


def _nccl_tests(host: Host, facts: Mapping[str, Any]) -> str:
    """ "2.17.6 sm_90 38974e70a1b2" of gpuctl's build, with its archive's digest; or the version of the site's test."""
    folder = facts["nccl_tests_request"].get("folder")
    if folder:
        version, wrong = _proof(host, facts)
        return "" if wrong else version or "no version in its help"
    try:
        now = nccl_tests.read(host)
    except model.Unreadable as error:
        raise Unreadable(str(error)) from error
    if now.build is None:
        return f"{nccl_tests.INCOMPLETE}, {nccl_tests.DAMAGED}" if now.wrong else ""
    return f"{now.build.shown} {now.build.sha256[:12]}{f', {nccl_tests.DAMAGED}' if now.wrong else ''}"


def _proof(host: Host, facts: Mapping[str, Any]) -> tuple[str, str]:
    """`nccl_tests.prove` of the site's folder, run once for both facts: a test that hangs takes its whole limit."""
    once = facts["read once"]
    if "proof" not in once:
        once["proof"] = nccl_tests.prove(host, facts["nccl_tests_request"]["folder"])
    proof: tuple[str, str] = once["proof"]
    return proof


def _nccl_tests_lacks(host: Host, facts: Mapping[str, Any]) -> list[str]:
    """What a build needs and the host does not have, or why the site's test does not run."""
    request = facts["nccl_tests_request"]
    if request.get("folder"):
        _, wrong = _proof(host, facts)
        return [wrong] if wrong else []
    return list(nccl_tests.toolchain(host, facts["compute"] or ())[1]) if request else []


def _architecture(host: Host, facts: Mapping[str, Any]) -> str:
    return os.uname().machine


def _cdi(host: Host, facts: Mapping[str, Any]) -> list[StackCdi]:
    return cdi.read(host)


# In this order: some need what others have read.
READERS: dict[str, Callable[[Host, Mapping[str, Any]], Any]] = {
    "gpus": _gpus,
    "nvswitches": _nvswitches,
    "infiniband_vpd": _infiniband_vpd,
    "efa_devices": _efa_devices,
    "kernel": _kernel,
    "headers": _headers,
    "secure_boot": _secure_boot,
    "mok_enrolled": _mok_enrolled,
    "distribution": _distribution,
    "architecture": _architecture,
    "packages": _packages,
    "interrupted": _interrupted,
    "holds": _holds,
    "pins": _pins,
    "running_module": _running_module,
    "running_open": _running_open,
    "installed_module": _installed_module,
    "installed_open": _installed_open,
    "foreign_modules": _foreign_modules,
    "smi_gpus": _smi_gpus,
    "cdi": _cdi,
    "busy": _busy,
    "repositories": _repositories,
    "keys": _keys,
    "additions": _additions,
    "offers": _offers,
    "lists_age_days": _lists_age_days,
    "efa_installed": _efa_installed,
    "efa_kind": _efa_kind,
    "efa_wrong": _efa_wrong,
    "rdma_drivers": _rdma_drivers,
    "peer_modules": _peer_modules,
    "peer_symbols": _peer_symbols,
    "efa_module": _efa_module,
    "gdrdrv_module": _gdrdrv_module,
    "gdrdrv_device": _gdrdrv_device,
    "nvidia_fs_module": _nvidia_fs_module,
    "gdscheck_lacks": _gdscheck_lacks,
    "compute": _compute,
    "nccl_tests": _nccl_tests,
    "nccl_tests_lacks": _nccl_tests_lacks,
}
