"""Checks of a host before its stack is changed: headers, Secure Boot, repository keys, and jobs."""

from __future__ import annotations

from dataclasses import replace

from gpuctl.core.text import named
from gpuctl.domain.findings import Finding, fail, ok, or_ok, unknown, warn
from gpuctl.gpu_node.model import HostGpuFacts, StackRequest
from gpuctl.gpu_node.rows import Knowledge
from gpuctl.gpu_node.version import DriverVersion, upstream

MOK_KEYS = "/var/lib/shim-signed/mok/MOK.der (Ubuntu) or /var/lib/dkms/mok.pub"
MOK_STEPS = (
    f"a person must enrol the key: mokutil --import {MOK_KEYS}, set a password, reboot, choose Enroll MOK on the "
    "console and type the password; or switch Secure Boot off in the firmware"
)


def judge_headers(host: str, facts: HostGpuFacts) -> list[Finding]:
    """DKMS builds for the running kernel, and needs its headers."""
    if facts.headers is None or facts.kernel is None:
        return [unknown("headers", host, f"the headers of the running kernel could not be looked up{_why(facts)}")]
    if not facts.headers:
        hint = "install them, or boot the newest kernel whose headers the repository has, and plan again"
        return [fail("headers", host, f"no headers for the running kernel {facts.kernel}", hint)]
    return [ok("headers", host, facts.kernel)]


def judge_secure_boot(host: str, facts: HostGpuFacts) -> list[Finding]:
    """With Secure Boot, the kernel loads modules only if their key is enrolled."""
    if facts.secure_boot is False:
        return [ok("secure boot", host, "off")]
    if facts.secure_boot is None:
        hint = "install mokutil, or read /sys/firmware/efi/efivars as root"
        return [unknown("secure boot", host, f"the state of Secure Boot could not be read{_why(facts)}", hint)]
    if facts.mok_enrolled is None:
        return [unknown("secure boot", host, f"on, and the enrolled keys could not be read{_why(facts)}", MOK_STEPS)]
    if not facts.mok_enrolled:
        return [fail("secure boot", host, "on, and no key for DKMS modules is enrolled", MOK_STEPS)]
    return [ok("secure boot", host, "on, and the key for DKMS modules is enrolled")]


def judge_keys(host: str, facts: HostGpuFacts, known: Knowledge) -> list[Finding]:
    """Keys of NVIDIA's repositories on the host must be pinned ones; no key yet is fine, it is then installed."""
    if facts.keys is None or facts.distribution is None:
        return [unknown("repository key", host, f"the keys of repositories could not be read{_why(facts)}")]
    pinned = {row.fingerprint for row in known.keys if facts.distribution in row.distributions}
    strange = [f"{name} ({key})" for name, key in sorted(facts.keys.items()) if _plain(key) not in pinned]
    if not strange:
        return [ok("repository key", host, named(sorted(facts.keys)) or "none yet")]
    hint = "find out who installed it; remove it, or add its row to gpuctl/data/gpu_stack/keys.yml"
    source = next((row.source for row in known.keys), "")
    message = f"fingerprint other than the pinned ones for {facts.distribution}: {named(strange)}"
    return [replace(fail("repository key", host, message, hint), source=source)]


def judge_busy(host: str, facts: HostGpuFacts) -> list[Finding]:
    """Jobs are left alone."""
    if facts.busy is None:
        return [unknown("busy", host, f"whether jobs run could not be read{_why(facts)}")]
    hint = "drain the host and wait for its jobs"
    return or_ok("busy", host, [fail("busy", host, reason, hint) for reason in facts.busy], "no jobs")


def judge_foreign_modules(host: str, facts: HostGpuFacts) -> list[Finding]:
    """Nouveau and nova drive the GPUs until a reboot without them."""
    if facts.foreign_modules is None:
        return [unknown("foreign module", host, f"the loaded modules could not be read{_why(facts)}")]
    return [ok("foreign module", host, named(facts.foreign_modules) or "none loaded")]


def judge_modules(host: str, facts: HostGpuFacts) -> list[Finding]:
    """A loaded module other than the installed one: programs of the new version fail until a reboot."""
    if facts.running_module is None or facts.installed_module is None:
        return [unknown("module", host, f"the running or the installed module could not be read{_why(facts)}")]
    running, installed = facts.running_module, facts.installed_module
    if running and running != installed:
        shown = installed or "none for the running kernel"
        return [warn("module", host, f"running {running}, installed {shown}", "drain and reboot the host")]
    flavours = facts.running_open, facts.installed_open
    if running and None not in flavours and flavours[0] != flavours[1]:
        return [warn("module", host, "running and installed module are of different flavours", "drain and reboot")]
    return [ok("module", host, running or "none loaded")]


def judge_packages(host: str, facts: HostGpuFacts, request: StackRequest, known: Knowledge) -> list[Finding]:
    """Packages, holds and pins must be read; a hold at another version is named, since the plan has to move it."""
    if facts.packages is None or facts.holds is None or facts.pins is None:
        return [unknown("holds", host, f"packages, holds or pins could not be read{_why(facts)}")]
    parts = [name for name in facts.holds if any(part.fits(name) for part in known.one_version)]
    other = [name for name in parts if not _has(facts.packages.get(name, ""), request)]
    if other:
        shown = named(f"{name} {facts.packages.get(name, '(not installed)')}" for name in other)
        return [warn("holds", host, f"held at another version than {request.driver}: {shown}", "release these holds")]
    return [ok("holds", host, named(parts) or "none of the driver")]


def _has(version: str, request: StackRequest) -> bool:
    real = upstream(version)
    exact = isinstance(request.driver, DriverVersion)
    return real is not None and (real == request.driver if exact else real.branch == request.driver)


def _plain(fingerprint: str) -> str:
    return "".join(fingerprint.split()).upper()


def _why(facts: HostGpuFacts) -> str:
    return f": {facts.unread['*']}" if "*" in facts.unread else ""
