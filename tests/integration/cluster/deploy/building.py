"""`gpuctl cluster build` as a user has it, with a stand-in for OpenShift's own API."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from click.testing import CliRunner

from gpuctl.cli.cluster.group import group
from gpuctl.core.errors import GpuctlError
from tests.integration.cluster.deploy.lab import Lab
from tests.rig.cluster.files import ON_OPENSHIFT
from tests.rig.command import Gpuctl, Said
from tests.rig.kube.plane import Plane
from tests.rig.kube.standin_openshift_builds import StandinBuilds

OF_FOLDER: Mapping[str, Any] = {**ON_OPENSHIFT, "image": {"name": None, "build": {}}}
# What an image is built from, and what is left out of it.
FILES = {
    "Dockerfile": "FROM a\nCOPY . /b\n",
    "train.py": "print()\n",
    ".dockerignore": "secret.txt\n*.log\n!keep.log\n",
    "secret.txt": "x",
    "a.log": "x",
    "keep.log": "kept\n",
    "__pycache__/train.pyc": "x",
    ".git/HEAD": "x",
    "empty": "",
}


def source(folder: Path) -> Path:
    """A folder with these files, a large one and a link."""
    for name, text in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    (folder / "big.bin").write_bytes(b"0123456789abcdef" * (1 << 18))
    (folder / "link").symlink_to("train.py")
    return folder


def namespace(plane: Plane, folder: Path) -> Iterator[Lab]:
    """The body of a fixture: a lab in a namespace where nothing runs, so that nothing has to be waited for."""
    name = f"t{time.monotonic_ns()}"
    plane.api("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
    yield Lab(plane, folder, name)


def inside(kubeconfig: object, *words: object) -> Said:
    """A command of gpuctl's in this process; an error of ours as it is told, without what goes around it."""
    _, *rest = map(str, words)
    done = CliRunner(env={"KUBECONFIG": str(kubeconfig)}).invoke(group, rest)
    if isinstance(done.exception, GpuctlError):
        told = f"{done.stderr}{done.exception}\n{done.exception.hint}\n"
        return Said(done.exception.exit_code, done.stdout, told)
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exc_info
    return Said(done.exit_code, done.stdout, done.stderr)


class Building:
    """The command, in a process of its own where a signal or what it prints matters."""

    def __init__(self, lab: Lab, builds: StandinBuilds, gpuctl: Gpuctl) -> None:
        self.lab, self.builds, self.gpuctl = lab, builds, gpuctl

    def words(self, *words: object, file: Mapping[str, Any] = OF_FOLDER) -> tuple[object, ...]:
        return ("cluster", "build", self.lab.path(file, {"cluster": {"api": self.builds.url}}), *words)

    def known(self, kubeconfig: Path | None = None) -> str:
        """A kubeconfig that leads to the stand-in."""
        path = self.lab.folder / "builds.kubeconfig"
        text = (kubeconfig or self.lab.plane.kubeconfig).read_text()
        path.write_text(text.replace(f"https://{self.lab.plane.address}:{self.lab.plane.port}", self.builds.url))
        return str(path)

    def __call__(self, *words: object) -> Said:
        return self.gpuctl(*self.words(*words), KUBECONFIG=self.known())

    def inside(self, *words: object, file: Mapping[str, Any] = OF_FOLDER, kubeconfig: Path | None = None) -> Said:
        """The same in this process, which is quicker."""
        return inside(self.known(kubeconfig), *self.words(*words, file=file))

    def phases(self) -> dict[str, str]:
        return {each["metadata"]["name"]: each["status"]["phase"] for each in self.lab.get("builds")["items"]}


def grant(lab: Lab, groups: Mapping[str, list[str]]) -> None:
    """The account may do all with these, besides what it may already."""
    api, names = "rbac.authorization.k8s.io/v1", {"name": "builder", "namespace": lab.namespace}
    rules = [{"apiGroups": [each], "resources": kinds, "verbs": ["*"]} for each, kinds in groups.items()]
    subject = {"kind": "ServiceAccount", "name": "default", "namespace": lab.namespace}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "builder"}
    lab.plane.apply(
        {"apiVersion": api, "kind": "Role", "metadata": names, "rules": rules},
        {"apiVersion": api, "kind": "RoleBinding", "metadata": names, "subjects": [subject], "roleRef": role},
    )


def until(stream: IO[str] | None, words: str) -> None:
    """Maybe what is printed until these words come."""
    assert stream is not None
    found = any(words in line for line in iter(stream.readline, ""))
    assert found, f"it ended without {words!r}"
