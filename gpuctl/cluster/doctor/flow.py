"""Looks at an environment for a trouble: read, ask the pods where that tells something, walk the checks."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from gpuctl.cluster.clusterfile.model import Cluster as File
from gpuctl.cluster.doctor import probe_pods, read, troubles
from gpuctl.cluster.doctor.diagnose import walk
from gpuctl.cluster.doctor.model import Diagnosis, Facts, Inside, Name
from gpuctl.cluster.doctor.probe_pods import Way
from gpuctl.core.redact import removed
from gpuctl.domain.pod_status import is_ready


@dataclass(frozen=True)
class Seen:
    """`nodes`: how many pods are to be. `silent`: why no pod that was asked told anything; then nothing is known."""

    name: str
    namespace: str
    found: list[Diagnosis]
    silent: str = ""
    hint: str = ""
    nodes: int = field(default=0)


def look(way: Way, file: File, name: str = "", single: bool = False, trouble: Name | None = None) -> Seen:
    """One trouble, or those that the environment's state suggests; nothing is changed.

    `Unreachable` where the cluster does not answer.
    """
    facts = read.look(way.cluster, file, name, single)
    chosen = [trouble] if trouble else suggested(facts)
    silent = hint = ""
    if set(chosen) - {"start"}:
        facts = replace(facts, inside=_redacted(probe_pods.ask_all(way, facts.env, facts.pods)))
        if facts.inside and not facts.asked():
            first = next(iter(facts.inside.values()))
            silent, hint = first.why, first.hint
    found = [walk(troubles.TROUBLES[each], facts) for each in chosen]
    return Seen(facts.env.name, facts.env.namespace, found, silent, hint, facts.env.nodes)


def suggested(facts: Facts) -> list[Name]:
    """Pods that are not all ready will not start; if they are, they hang or are slow."""
    ready = [name for name, pod in facts.pods.items() if is_ready(pod)]
    return ["hang", "slow"] if facts.mode and set(facts.wanted) <= set(ready) else ["start"]


def _redacted(inside: dict[str, Inside]) -> dict[str, Inside]:
    """The pods' answers without secrets in quoted log lines."""
    redacted = {}
    for name, answer in inside.items():
        files = [
            {**file, "lines": removed("\n".join(file["lines"]))[0].splitlines()}
            for file in answer.get("words", "files") or ()
        ]
        redacted[name] = (
            replace(answer, said={**answer.said, "words": {**answer.said["words"], "files": files}})
            if files
            else answer
        )
    return redacted
