"""Requests to pods and their answers, as values."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gpuctl.cluster.manifests.storage import WHERE
from gpuctl.engine import gpu_xml
from gpuctl.remote.model import ENV_FILE

HOSTFILE = "/job/hostfile"
# Why a program of the image did not end by itself; it has no output then.
UNFINISHED = {"late": "it does not answer", "excess": "it printed too much and was stopped"}
LIMIT_S = 8.0  # for names, and for a port
ASK_S, DETAILS_S = 30.0, 60.0  # for programs: eight GPUs without persistence mode take ten seconds and more


@dataclass(frozen=True)
class ProbeRequest:
    """Request to every pod. `hosts`: names to resolve; `script`: a file to hash; `whole`: GPU details, too.

    `ssh`: pod -> hosts it must reach by ssh. `port`: a port of the first pod that all others must reach.
    """

    hosts: Sequence[str]
    script: str = ""
    programs: Sequence[str] = ()
    ssh: Mapping[str, Sequence[str]] = field(default_factory=dict)
    port: int = 0
    whole: bool = False
    ds_env: Sequence[str] = ()  # files with variables for DeepSpeed

    def order(self, pod: str, first: str, runs: str) -> dict[str, Any]:
        """Serialise the request for one pod."""
        reach = [self.hosts[0], self.port] if self.port and pod != first else None
        return {
            "what": "facts",
            "hosts": list(self.hosts),
            "script": self.script,
            "programs": list(self.programs),
            "ssh": list(self.ssh.get(pod, ())),
            "reach": reach,
            "whole": self.whole,
            "limit_s": LIMIT_S,
            "ask_s": DETAILS_S if self.whole else ASK_S,
            "hostfile": HOSTFILE,
            "workspace": WHERE["workspace"],
            "env_file": ENV_FILE,
            "runs": runs,
            "ds_env": list(self.ds_env),
        }


@dataclass(frozen=True)
class Facts:
    """One pod's answer; `unread`: why there is none, and then nothing else is known."""

    pod: str
    answer: Mapping[str, Any] = field(default_factory=dict)
    unread: str = ""
    hint: str = ""

    @property
    def gpus(self) -> int | None:
        """Number of GPUs visible in the container; None if unknown."""
        if self._listed is not None:
            return len(re.findall(r"^GPU \d+:", self._listed, re.MULTILINE))
        files = len(self.answer["devices"]["gpus"])
        return files if self.answer["answers"]["gpus"]["code"] is None and files else None

    @property
    def migs(self) -> int | None:
        """Number of visible GPU partitions (MIG devices); None if unknown."""
        return None if self._listed is None else len(re.findall(r"^\s+MIG \S+\s+Device", self._listed, re.MULTILINE))

    @property
    def _listed(self) -> str | None:
        """Output of nvidia-smi -L; None if it failed."""
        listing = self.answer["answers"]["gpus"]
        return str(listing["text"]) if listing["code"] == 0 else None

    @property
    def gpus_wrong(self) -> str:
        """Error of nvidia-smi; empty if there was none or the program does not exist."""
        listing = self.answer["answers"]["gpus"]
        if listing.get("why") in UNFINISHED:
            return UNFINISHED[listing["why"]]
        return _last(listing["text"]) or f"exit code {listing['code']}" if listing["code"] else ""

    @property
    def details(self) -> Mapping[str, Any] | None:
        """Parsed output of nvidia-smi -q -x (see `gpu_xml.parse`); None if it failed."""
        result = self.answer["answers"].get("details") or {}
        try:
            return gpu_xml.parse(result["text"]) if result.get("code") == 0 else None
        except ValueError:
            return None

    @property
    def hostfile(self) -> dict[str, int] | str:
        """Hosts and their slots, as DeepSpeed reads the file; a text if it cannot."""
        result = self.answer["hostfile"]
        if "why" in result:
            return f"{HOSTFILE}: {result['why']}"
        slots: dict[str, int] = {}
        for line in filter(None, map(str.strip, result["text"].splitlines())):
            match = re.match(r"(\S+)\s+slots=(\d+)", line)
            if match:
                slots[match[1]] = int(match[2])
            elif not line.startswith("#"):
                return f"{HOSTFILE} has a line that no launcher reads: {line[:80]}"
        return slots

    def ssh(self, host: str) -> str:
        """Why a host cannot be reached by ssh; empty if it can."""
        result = self.answer["answers"][f"ssh {host}"]
        if result["code"] == 0:
            return ""
        if result["code"] is None:
            return "the image has no ssh" if result["why"] == "none" else f"ssh: {UNFINISHED[result['why']]}"
        return _last(result["text"]) or f"ssh ended with exit code {result['code']}"

    def names_wrong(self) -> dict[str, str]:
        """Names that do not resolve in the pod, and why."""
        errors = {host: result for host, result in self.answer["names"].items() if isinstance(result, str)}
        return {host: "no answer" if error == "late" else error for host, error in errors.items()}


def _last(text: str) -> str:
    return next((line.strip()[:200] for line in reversed(text.splitlines()) if line.strip()), "")
