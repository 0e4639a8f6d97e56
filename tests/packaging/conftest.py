"""gpuctl as users have it: in a virtual environment of its own, far from any checkout."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NOT_SOURCE = shutil.ignore_patterns(
    ".git", ".venv", ".ansible", ".hypothesis", ".*_cache", "__pycache__", "build", "dist", "tests"
)


@dataclass(frozen=True)
class Installed:
    """A virtual environment with gpuctl in it, and an empty folder and home to call it from."""

    environment: Path
    elsewhere: Path

    def run(self, program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run one of its programs as somebody does who has not activated it."""
        return subprocess.run(
            [self.environment / "bin" / program, *arguments],
            check=False,
            capture_output=True,
            text=True,
            cwd=self.elsewhere,
            env={"PATH": os.defpath, "HOME": str(self.elsewhere), "LC_ALL": "C.UTF-8"},
            stdin=subprocess.DEVNULL,
        )


@pytest.fixture(scope="package")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the sources, so that building leaves nothing in the checkout."""
    return shutil.copytree(ROOT, tmp_path_factory.mktemp("source") / "gpuctl", ignore=NOT_SOURCE)


@pytest.fixture(scope="package")
def wheel(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from the sources."""
    return build("wheel", tree, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="package", params=["wheel", "editable"])
def installed(
    request: pytest.FixtureRequest, tree: Path, wheel: Path, tmp_path_factory: pytest.TempPathFactory
) -> Installed:
    """gpuctl installed both ways; every promise holds for each."""
    made = Installed(tmp_path_factory.mktemp("environment"), tmp_path_factory.mktemp("elsewhere"))
    venv.create(made.environment, with_pip=False)
    lend_dependencies(made.environment)
    what = [str(wheel)] if request.param == "wheel" else ["--editable", str(tree)]
    done = made.run("python", "-m", "pip", "install", "--no-index", "--no-deps", "--no-build-isolation", *what)
    assert done.returncode == 0, done.stderr
    return made


def build(target: str, source: Path, folder: Path) -> Path:
    """Build the "wheel" or the "sdist" of a source tree."""
    command = [sys.executable, "-m", "hatchling", "build", "--target", target, "--directory", str(folder)]
    subprocess.run(command, check=True, cwd=source, stdout=subprocess.DEVNULL)
    (built,) = folder.iterdir()
    return built


def lend_dependencies(environment: Path) -> None:
    """Whatever is installed beside the tests except gpuctl itself, by links, so that nothing is downloaded."""
    lent = environment / "lent"
    lent.mkdir()
    for path in Path(sysconfig.get_path("purelib")).iterdir():
        if "gpuctl" not in path.name and path.name != "ansible_collections":
            (lent / path.name).symlink_to(path)
    Path(sysconfig.get_path("purelib", vars={"base": str(environment)}), "lent.pth").write_text(f"{lent}\n")
    for program in ("inventory", "playbook", "doc"):
        script = environment / f"bin/ansible-{program}"
        script.write_text(f"#!{environment}/bin/python\nfrom ansible.cli.{program} import main\nmain()\n")
        script.chmod(0o755)
