"""Checks of a resolved transaction: one version over all parts of the driver, and no package of another branch."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from gpuctl.core.text import named
from gpuctl.domain.findings import Finding, fail, ok, unknown
from gpuctl.gpu_node.rows import OneVersion
from gpuctl.gpu_node.transaction import Transaction
from gpuctl.gpu_node.version import DriverVersion, upstream

CHECK = "one version"
_SUFFIX = re.compile(r"-(\d{3})(?=-|$)")


def judge_transaction(
    host: str,
    transaction: Transaction,
    installed: Mapping[str, str] | None,
    driver: DriverVersion | int,
    parts: Sequence[OneVersion],
) -> list[Finding]:
    """Refusals of what would be installed after the transaction, or one OK.

    `installed`: packages on the host, since those that stay must fit, too; None is UNKNOWN.
    """
    if installed is None:
        return [unknown(CHECK, host, "the installed packages could not be read")]
    after = transaction.after(installed)
    findings = [*_branches(host, transaction), *_one_version(host, after, driver, parts)]
    return findings or [ok(CHECK, host, f"all parts have {driver}")]


def _one_version(
    host: str, after: Mapping[str, str], driver: DriverVersion | int, parts: Sequence[OneVersion]
) -> Iterator[Finding]:
    members = {name: part for name in sorted(after) if (part := _part(name, parts))}
    strange = [f"{name} {after[name]}" for name in members if upstream(after[name]) is None]
    if strange:
        yield unknown(CHECK, host, f"no driver version in {named(strange)}", "name the packages with their versions")
    versions: dict[str, dict[str, None]] = {}
    for name, part in members.items():
        version = upstream(after[name])
        if version is not None:
            versions.setdefault(version.text, {})[part] = None
    if not members:
        yield unknown(CHECK, host, "no package of the driver would be installed", "check the repository and the names")
    elif len(versions) > 1:
        yield _differs(host, versions, parts)
    elif versions and not _fits(next(iter(versions)), driver):
        hint = "pin the version, and look at what the repository offers"
        yield fail(CHECK, host, f"all parts would have {next(iter(versions))}, not {driver}", hint)


def _differs(host: str, versions: Mapping[str, Mapping[str, None]], parts: Sequence[OneVersion]) -> Finding:
    shown = "; ".join(f"{named(names)} {version}" for version, names in versions.items())
    hint = "use a repository that has all parts in one version, such as NVIDIA's CUDA repository"
    source = parts[0].source if parts else ""
    return replace(fail(CHECK, host, f"{len(versions)} versions in one set: {shown}", hint), source=source)


def _part(name: str, parts: Sequence[OneVersion]) -> str:
    """Part of the set that a package belongs to; "" for others."""
    return next((part.part for part in parts if part.fits(name)), "")


def _fits(version: str, driver: DriverVersion | int) -> bool:
    return version == str(driver) if isinstance(driver, DriverVersion) else version.startswith(f"{driver}.")


def _branches(host: str, transaction: Transaction) -> Iterator[Finding]:
    """Transitional packages: the name has one branch, the version another."""
    for name, version in sorted(transaction.installs.items()):
        match, real = _SUFFIX.search(name), upstream(version)
        if not match or not re.search("nvidia|cuda-drivers", name) or real is None:
            continue
        if int(match[1]) != real.branch:
            message = f"{name} resolves to {version}: a transitional package of branch {real.branch}"
            yield replace(
                fail("branch", host, message, f"set driver: {real.branch}, or pin a repository that has {match[1]}"),
                source="Ubuntu source package control files",
            )
