"""The golden files: rendered once, read by people, compared ever after. Run it to write them anew."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from gpuctl.cluster.clusterfile.read import load
from gpuctl.cluster.environment import EnvironmentRequest, environment
from gpuctl.cluster.manifests import as_yaml, everything
from tests.rig.cluster.files import EKS, OPENSHIFT, ROOT

FOLDER = ROOT / "tests/data/cluster/golden"


class Golden(NamedTuple):
    """A cluster file and what is asked for."""

    file: Path
    asked: EnvironmentRequest


FILES = {
    "h100-roce-openshift-rdma.yaml": Golden(OPENSHIFT, EnvironmentRequest("rdma")),
    "h100-roce-openshift-tcp.yaml": Golden(OPENSHIFT, EnvironmentRequest("tcp", 4, "alice")),
    "h100-roce-openshift-single.yaml": Golden(OPENSHIFT, EnvironmentRequest(single=True)),
    "p5-efa-eks-rdma.yaml": Golden(EKS, EnvironmentRequest("rdma", 8)),
    "p5-efa-eks-tcp.yaml": Golden(EKS, EnvironmentRequest("tcp", actor="someone@somewhere")),
}


def text(golden: Golden) -> str:
    return as_yaml.as_yaml(everything(environment(load(golden.file), golden.asked)))


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, golden in FILES.items():
        (FOLDER / name).write_text(text(golden))
