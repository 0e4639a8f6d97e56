"""NVIDIA's repositories on a host: signatures are checked, with a pinned key that can be used."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpuctl.domain.findings import Verdict
from gpuctl.gpu_node.host_check import judge_repositories
from gpuctl.gpu_node.knowledge import knowledge
from gpuctl.gpu_node.model import Repository, RepositoryKey
from tests.rig.gpu_stack_machines import MACHINES

KNOWN = knowledge()
PINNED = {row.name: row.fingerprint for row in KNOWN.keys}
FILE = "/usr/share/keyrings/site.gpg"
CUDA = Repository("/etc/apt/sources.list.d/cuda.list", "http://mirror/compute/cuda/repos/ubuntu2404/x86_64", (FILE,))
KEY = RepositoryKey(FILE, PINNED["cuda-apt"])


@pytest.mark.parametrize(
    ("repository", "keys", "verdict", "reason"),
    [
        (CUDA, (KEY,), Verdict.OK, "by /usr/share/keyrings/site.gpg"),
        (CUDA, (replace(KEY, unusable="expired"),), Verdict.FAIL, "expired: /usr/share/keyrings/site.gpg"),
        (CUDA, (replace(KEY, unusable="revoked"),), Verdict.FAIL, "revoked"),
        (CUDA, (replace(KEY, fingerprint="0" * 40),), Verdict.FAIL, "fingerprint other than the pinned ones"),
        # The key of another repository of NVIDIA.
        (CUDA, (replace(KEY, fingerprint=PINNED["container-toolkit"]),), Verdict.FAIL, "fingerprint other"),
        (CUDA, (KEY, RepositoryKey(f"{FILE} 2", "0" * 40)), Verdict.FAIL, "site.gpg 2 (0000"),
        (CUDA, (), Verdict.FAIL, "is missing: /usr/share/keyrings/site.gpg"),
        (replace(CUDA, verified=False), (KEY,), Verdict.FAIL, "are not checked"),
        (replace(CUDA, keys=()), (), Verdict.WARN, "any key that the host trusts"),
        (replace(CUDA, keys=("https://mirror/key.pub",)), (), Verdict.UNKNOWN, "fetched from https://mirror/key.pub"),
        (replace(CUDA, keys=(PINNED["cuda-apt"],)), (), Verdict.OK, ""),
        (replace(CUDA, keys=("F" * 40,)), (), Verdict.FAIL, "fingerprint other"),
        (None, (), Verdict.OK, "no repository of NVIDIA yet"),
        (None, (replace(KEY, fingerprint="0" * 40),), Verdict.FAIL, "fingerprint other"),
    ],
)
def test_a_repository_is_judged_by_its_key(
    repository: Repository | None, keys: tuple[RepositoryKey, ...], verdict: Verdict, reason: str
) -> None:
    facts = replace(MACHINES["T4"], repositories=(repository,) if repository else (), keys=keys)
    findings = judge_repositories("node-1", facts, KNOWN)
    assert [finding.verdict for finding in findings] == [verdict]
    assert reason in findings[0].message
    assert verdict is Verdict.OK or findings[0].hint


def test_each_repository_has_a_row_that_matches_its_published_address() -> None:
    for name, uri in (
        ("cuda-apt", "https://developer.download.nvidia.com/compute/cuda/repos/ubuntu2404/x86_64/"),
        ("container-toolkit", "https://nvidia.github.io/libnvidia-container/stable/deb/amd64"),
    ):
        facts = replace(
            MACHINES["T4"],
            repositories=(replace(CUDA, uri=uri),),
            keys=(replace(KEY, fingerprint=PINNED[name]),),
        )
        assert [finding.verdict for finding in judge_repositories("node-1", facts, KNOWN)] == [Verdict.OK]
