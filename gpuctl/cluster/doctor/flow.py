"""Diagnose an environment: read the cluster, probe the pods if a check needs it, run the checks."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from gpuctl.cluster.clusterfile.model import Cluster as File
from gpuctl.cluster.doctor import probe_pods, read, troubles
from gpuctl.cluster.doctor.diagnose import run_checks
from gpuctl.cluster.doctor.model import Diagnosis, Facts, Name, PodFacts
from gpuctl.cluster.doctor.probe_pods import ProbeOptions
from gpuctl.core.redact import removed
from gpuctl.domain.pod_status import is_ready


@dataclass(frozen=True)
class Examination:
    """`nodes`: expected number of pods. `silent`: why every probe failed, "" if any pod answered."""

    name: str
    namespace: str
    diagnoses: list[Diagnosis]
    silent: str = ""
    hint: str = ""
    nodes: int = field(default=0)

    @property
    def clean(self) -> bool:
        return all(diagnosis.clean for diagnosis in self.diagnoses)

    @property
    def undecided(self) -> bool:
        """True if no pod answered and no cause is known without their answers."""
        return bool(self.silent) and not any(diagnosis.cause for diagnosis in self.diagnoses)


@dataclass(frozen=True)
class DoctorRequest:
    """The environment of a cluster file, and the trouble; without one, those that its state suggests."""

    file: File
    name: str = ""
    single: bool = False
    trouble: Name | None = None


def examine(options: ProbeOptions, request: DoctorRequest) -> Examination:
    """Diagnose without changing anything; `Unreachable` if the cluster does not answer."""
    facts = read.read_facts(options.cluster, request.file, request.name, request.single)
    names = [request.trouble] if request.trouble else suggested(facts)
    silent = hint = ""
    if set(names) - {"start"}:
        facts = replace(facts, inside=_redacted(probe_pods.probe_all(options, facts.env, facts.pods)))
        if facts.inside and not facts.answered():
            first = next(iter(facts.inside.values()))
            silent, hint = first.why, first.hint
    diagnoses = [run_checks(troubles.TROUBLES[name], facts) for name in names]
    return Examination(facts.env.name, facts.env.namespace, diagnoses, silent, hint, facts.env.nodes)


def suggested(facts: Facts) -> list[Name]:
    """Return "start" unless all pods are ready; then "hang" and "slow"."""
    ready = [name for name, pod in facts.pods.items() if is_ready(pod)]
    return ["hang", "slow"] if facts.mode and set(facts.expected_pods) <= set(ready) else ["start"]


def _redacted(inside: dict[str, PodFacts]) -> dict[str, PodFacts]:
    """The pods' answers without secrets in quoted log lines."""
    redacted = {}
    for name, answer in inside.items():
        files = [
            {**file, "lines": removed("\n".join(file["lines"]))[0].splitlines()}
            for file in answer.get("nccl_logs", "files") or ()
        ]
        redacted[name] = (
            replace(answer, values={**answer.values, "nccl_logs": {**answer.values["nccl_logs"], "files": files}})
            if files
            else answer
        )
    return redacted
