"""What pods are asked, and what they answer, as values."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gpuctl.cluster.manifests.storage import WHERE
from gpuctl.engine import gpu_xml
from gpuctl.remote.model import SAYS

HOSTFILE = "/job/hostfile"
LIMIT_S = 8.0  # for names, and for a port
ASK_S, DETAILS_S = 30.0, 60.0  # for programs: eight GPUs without persistence mode take ten seconds and more


@dataclass(frozen=True)
class Wanted:
    """What each pod is asked. `hosts`: names to look up; `script`: a file to hash; `whole`: GPUs in detail, too.

    `ssh`: pod -> hosts that it is to reach by ssh. `port`: what all pods but the first are to reach on that one.
    """

    hosts: Sequence[str]
    script: str = ""
    programs: Sequence[str] = ()
    ssh: Mapping[str, Sequence[str]] = field(default_factory=dict)
    port: int = 0
    whole: bool = False
    ds_env: Sequence[str] = ()  # files with variables for DeepSpeed

    def order(self, pod: str, first: str, runs: str) -> dict[str, Any]:
        """As it is told to a pod."""
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
            "says": SAYS,
            "runs": runs,
            "ds_env": list(self.ds_env),
        }


@dataclass(frozen=True)
class Facts:
    """What one pod answered; `unread`: why it did not, and then nothing else is known."""

    pod: str
    told: Mapping[str, Any] = field(default_factory=dict)
    unread: str = ""
    hint: str = ""

    @property
    def gpus(self) -> int | None:
        """How many the container sees; None where nothing can say."""
        if self._listed is not None:
            return len(re.findall(r"^GPU \d+:", self._listed, re.MULTILINE))
        files = len(self.told["devices"]["gpus"])
        return files if self.told["answers"]["gpus"]["code"] is None and files else None

    @property
    def migs(self) -> int | None:
        """How many parts of GPUs (MIG) it sees, which stand below theirs; None where nothing can say."""
        return None if self._listed is None else len(re.findall(r"^\s+MIG \S+\s+Device", self._listed, re.MULTILINE))

    @property
    def _listed(self) -> str | None:
        """What nvidia-smi -L told; None where it did not."""
        said = self.told["answers"]["gpus"]
        return str(said["text"]) if said["code"] == 0 else None

    @property
    def gpus_wrong(self) -> str:
        """What nvidia-smi complained of; empty where it did not, or is not there."""
        said = self.told["answers"]["gpus"]
        if said.get("why") == "late":
            return "it does not answer"
        return _last(said["text"]) or f"exit code {said['code']}" if said["code"] else ""

    @property
    def details(self) -> Mapping[str, Any] | None:
        """What nvidia-smi -q -x tells (see `gpu_xml.parse`); None where it does not."""
        said = self.told["answers"].get("details") or {}
        try:
            return gpu_xml.parse(said["text"]) if said.get("code") == 0 else None
        except ValueError:
            return None

    @property
    def hostfile(self) -> dict[str, int] | str:
        """Hosts and their slots, as DeepSpeed reads them; a text where it cannot."""
        said = self.told["hostfile"]
        if "why" in said:
            return f"{HOSTFILE}: {said['why']}"
        found: dict[str, int] = {}
        for line in filter(None, map(str.strip, said["text"].splitlines())):
            match = re.match(r"(\S+)\s+slots=(\d+)", line)
            if match:
                found[match[1]] = int(match[2])
            elif not line.startswith("#"):
                return f"{HOSTFILE} has a line that no launcher reads: {line[:80]}"
        return found

    def ssh(self, host: str) -> str:
        """Why a host cannot be reached by ssh; empty where it can."""
        said = self.told["answers"][f"ssh {host}"]
        if said["code"] == 0:
            return ""
        if said["code"] is None:
            return "there is no ssh" if said["why"] == "none" else "ssh does not answer"
        return _last(said["text"]) or f"ssh ended with exit code {said['code']}"

    def names_wrong(self) -> dict[str, str]:
        """Names that have no address here, and why."""
        found = {host: said for host, said in self.told["names"].items() if isinstance(said, str)}
        return {host: "no answer" if said == "late" else said for host, said in found.items()}


def _last(text: str) -> str:
    return next((line.strip()[:200] for line in reversed(text.splitlines()) if line.strip()), "")
