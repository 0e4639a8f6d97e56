"""Checks of a host before its stack is changed: headers, Secure Boot, repositories and keys, and jobs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from gpuctl.core.text import named, plural
from gpuctl.domain.findings import Finding, fail, ok, or_ok, unknown, warn
from gpuctl.gpu_node.model import Addition, HostGpuFacts, Repository, RepositoryKey, StackRequest
from gpuctl.gpu_node.offers import REFRESH
from gpuctl.gpu_node.rows import Key, Knowledge
from gpuctl.gpu_node.version import DriverVersion, upstream

OLD_LISTS_DAYS = 14
MOK_KEYS = "/var/lib/shim-signed/mok/MOK.der (Ubuntu) or /var/lib/dkms/mok.pub"
MOK_STEPS = (
    f"a person must enrol the key: mokutil --import {MOK_KEYS}, set a password, reboot, choose Enroll MOK on the "
    "console and type the password; or switch Secure Boot off in the firmware"
)
AS_ROOT = "read the host as root (ansible_become), and look at the reason"
KEY = "repository key"


def judge_headers(host: str, facts: HostGpuFacts, package: str | None) -> list[Finding]:
    """DKMS builds for the running kernel, and needs its headers. `package`: the one with them, "" if no repository has
    it, None if that is not known.
    """
    if facts.headers is None or facts.kernel is None:
        message = f"the headers of the running kernel could not be looked up{facts.why('headers', 'kernel')}"
        return [unknown("headers", host, message, AS_ROOT)]
    if facts.headers:
        return [ok("headers", host, facts.kernel)]
    if package:
        return [ok("headers", host, f"of {facts.kernel}, to be installed: {package}")]
    hint = "install them, or boot the newest kernel whose headers the repository has, and plan again"
    return [fail("headers", host, f"no headers for the running kernel {facts.kernel}", hint)]


def judge_secure_boot(host: str, facts: HostGpuFacts) -> list[Finding]:
    """With Secure Boot, the kernel loads modules only if their key is enrolled."""
    if facts.secure_boot is False:
        return [ok("secure boot", host, "off")]
    if facts.secure_boot is None:
        hint = "install mokutil, or read /sys/firmware/efi/efivars as root"
        message = f"the state of Secure Boot could not be read{facts.why('secure_boot')}"
        return [unknown("secure boot", host, message, hint)]
    if facts.mok_enrolled is None:
        message = f"on, and the enrolled keys could not be read{facts.why('mok_enrolled')}"
        return [unknown("secure boot", host, message, MOK_STEPS)]
    if not facts.mok_enrolled:
        return [fail("secure boot", host, "on, and no key for DKMS modules is enrolled", MOK_STEPS)]
    return [ok("secure boot", host, "on, and the key for DKMS modules is enrolled")]


def judge_repositories(host: str, facts: HostGpuFacts, known: Knowledge) -> list[Finding]:
    """NVIDIA's repositories check signatures, with a key of the pinned fingerprint that is neither expired nor revoked.

    No repository yet is fine: it is added with its key.
    """
    if facts.repositories is None or facts.keys is None or facts.distribution is None:
        message = f"repositories and keys could not be read{facts.why('repositories', 'keys', 'distribution')}"
        return [unknown(KEY, host, message, "install gpg on the host, and read it as root")]
    by_name = {key.name: key for key in facts.keys}
    findings = [finding for row in facts.repositories for finding in _repository(host, row, by_name, facts, known)]
    pinned = _pinned(facts.distribution, known.keys)
    signing = {name for row in facts.repositories for name in row.keys}
    for key in facts.keys:
        if key.name.partition(" ")[0] not in signing and key.name not in signing:
            findings += _key(host, key, pinned, facts.distribution, known)
    for addition in facts.additions or ():
        findings += _addition(host, addition, facts.distribution, known)
    shown = named(f"{row.uri} by {named(row.keys)}" for row in facts.repositories) or "no repository of NVIDIA yet"
    return or_ok(KEY, host, findings, shown)


def _addition(host: str, row: Addition, distribution: str, known: Knowledge) -> Iterator[Finding]:
    """A repository to add is trusted by the fingerprint of its key alone: both come from the same address."""
    address = next((line.partition(" ")[2] for line in row.text.splitlines() if line.startswith("URIs:")), "")
    if row.wrong:
        hint = "let the host reach it, or set source to a mirror that has the same paths"
        yield unknown(KEY, host, f"the key of {address} could not be fetched: {row.wrong}", hint)
    for fingerprint in row.fingerprints:
        key = RepositoryKey(f"the key of {address}", fingerprint)
        yield from _key(host, key, _pinned(distribution, known.keys, address), distribution, known)


def _pinned(distribution: str, keys: tuple[Key, ...], uri: str = "") -> tuple[Key, ...]:
    """Keys for the distribution, and if any is for the repository's address, only those."""
    rows = tuple(row for row in keys if distribution in row.distributions)
    return tuple(row for row in rows if uri and re.search(row.uri, uri)) or rows


def _repository(
    host: str, row: Repository, by_name: dict[str, RepositoryKey], facts: HostGpuFacts, known: Knowledge
) -> Iterator[Finding]:
    distribution = facts.distribution or ""
    pinned = _pinned(distribution, known.keys, row.uri)
    if not row.verified:
        hint = f"remove trusted=yes, or set gpgcheck=1, in {row.file}"
        yield fail(KEY, host, f"signatures of {row.uri} are not checked ({row.file})", hint)
    if not row.keys:
        hint = f"name the key with Signed-By (apt) or gpgkey (dnf) in {row.file}"
        yield warn(KEY, host, f"any key that the host trusts may sign {row.uri} ({row.file})", hint)
    for name in row.keys:
        if re.fullmatch(r"[0-9A-Fa-f]{40,}!?", name):
            yield from _key(host, RepositoryKey(row.file, name.rstrip("!").upper()), pinned, distribution, known)
            continue
        keys = [
            key for key in by_name.values() if key.name == name or re.fullmatch(re.escape(name) + r" \d+", key.name)
        ]
        if not keys and "://" in name:
            hint = "store the key in a file on the host, compare its fingerprint, and name the file"
            yield unknown(KEY, host, f"the key of {row.uri} is fetched from {name} at its first use, unchecked", hint)
        elif not keys:
            yield fail(KEY, host, f"the key of {row.uri} is missing: {name}", f"install the key, or remove {row.file}")
        for key in keys:
            yield from _key(host, key, pinned, distribution, known)


def _key(
    host: str, key: RepositoryKey, pinned: tuple[Key, ...], distribution: str, known: Knowledge
) -> Iterator[Finding]:
    if plain_fingerprint(key.fingerprint) not in {row.fingerprint for row in pinned}:
        message = f"fingerprint other than the pinned ones for {distribution}: {key.name} ({key.fingerprint})"
        hint = "find out who installed it; remove it, or add its row to gpuctl/data/gpu_stack/keys.yml"
        source = next((row.source for row in pinned or known.keys), "")
        yield replace(fail(KEY, host, message, hint), source=source)
    elif key.unusable:
        hint = "install NVIDIA's current key, and compare its fingerprint"
        yield fail(KEY, host, f"{key.unusable}: {key.name} ({key.fingerprint})", hint)


def judge_lists(host: str, facts: HostGpuFacts) -> list[Finding]:
    """Versions are those of the lists that the host last fetched."""
    age = facts.lists_age_days
    if age is None:
        message = f"the age of the package lists could not be read{facts.why('lists_age_days')}"
        return [unknown("package lists", host, message, REFRESH)]
    if age > OLD_LISTS_DAYS:
        return [warn("package lists", host, f"fetched {plural(age, 'day')} ago", REFRESH)]
    return [ok("package lists", host, f"at most {OLD_LISTS_DAYS} days old")]


def judge_busy(host: str, facts: HostGpuFacts) -> list[Finding]:
    """Jobs are left alone."""
    if facts.busy is None:
        return [unknown("busy", host, f"whether jobs run could not be read{facts.why('busy')}", AS_ROOT)]
    hint = "drain the host and wait for its jobs"
    # The engine counts a source that it cannot read as busy.
    findings = [
        unknown("busy", host, reason, AS_ROOT) if " unknown: " in reason else fail("busy", host, reason, hint)
        for reason in facts.busy
    ]
    return or_ok("busy", host, findings, "no jobs")


def judge_foreign_modules(host: str, facts: HostGpuFacts) -> list[Finding]:
    """Nouveau and nova drive the GPUs until a reboot without them."""
    if facts.foreign_modules is None:
        message = f"the loaded modules could not be read{facts.why('foreign_modules')}"
        return [unknown("foreign module", host, message, AS_ROOT)]
    return [ok("foreign module", host, named(facts.foreign_modules) or "none loaded")]


def judge_modules(host: str, facts: HostGpuFacts) -> list[Finding]:
    """A loaded module other than the installed one: programs of the new version fail until a reboot."""
    if facts.running_module is None or facts.installed_module is None:
        why = facts.why("running_module", "installed_module")
        return [unknown("module", host, f"the running or the installed module could not be read{why}", AS_ROOT)]
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
        why = facts.why("packages", "holds", "pins")
        return [unknown("holds", host, f"packages, holds or pins could not be read{why}", AS_ROOT)]
    parts = [name for name in facts.holds if any(part.fits(name) for part in known.one_version)]
    other = [name for name in parts if not _has(facts.packages.get(name, ""), request)]
    if other:
        shown = named(f"{name} {facts.packages.get(name, '(not installed)')}" for name in other)
        return [warn("holds", host, f"held at another version than {request.driver}: {shown}", "release these holds")]
    return [ok("holds", host, named(parts) or "none of the driver")]


OF_APT = "`gpuctl bootstrap gpu-node` completes it first; or run dpkg --configure -a on the host"
OF_DNF = "`gpuctl bootstrap gpu-node` completes what gpuctl began; for others, see dnf check --duplicates on the host"


def judge_interrupted(host: str, facts: HostGpuFacts) -> list[Finding]:
    """Nothing can be installed while dpkg or rpm has not completed its last work."""
    if facts.interrupted is None:
        message = f"packages left half done could not be read{facts.why('interrupted')}"
        return [unknown("interrupted", host, message, AS_ROOT)]
    if facts.interrupted:
        by_rpm = (facts.distribution or "").startswith(("rhel", "amzn"))
        name, hint = ("rpm", OF_DNF) if by_rpm else ("dpkg", OF_APT)
        return [fail("interrupted", host, f"{name} was interrupted: {named(facts.interrupted)}", hint)]
    return []


def _has(version: str, request: StackRequest) -> bool:
    real = upstream(version)
    exact = isinstance(request.driver, DriverVersion)
    return real is not None and (real == request.driver if exact else real.branch == request.driver)


def plain_fingerprint(fingerprint: str) -> str:
    """Without spaces, in upper case."""
    return "".join(fingerprint.split()).upper()
