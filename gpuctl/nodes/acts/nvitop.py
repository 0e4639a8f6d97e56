"""nvitop and what it needs, pinned: it is installed on a node for one session. No I/O."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Wheel:
    """A wheel with its pin. `platforms`: of pip, "" for any; `machine`: that it is built for, "" for any."""

    name: str
    requirement: str
    sha256: str
    machine: str = ""
    platforms: tuple[str, ...] = ()


_PSUTIL = "psutil-7.2.2-cp36-abi3"
# nvitop 1.7.2 requires nvidia-ml-py below 13.616. These builds of psutil serve Python 3.6 and later.
WHEELS = (
    Wheel(
        "nvitop-1.7.2-py3-none-any.whl",
        "nvitop==1.7.2",
        "44206b26a8ed808d5f75be32dd37e83c69f80aef0570f8f804600926dea7881b",
    ),
    Wheel(
        "nvidia_ml_py-13.615.71-py3-none-any.whl",
        "nvidia-ml-py==13.615.71",
        "959bf4adf6fe1308e4bd739e722236b0d1ec8392e2cefad33ff70c311380b9b6",
    ),
    Wheel(
        f"{_PSUTIL}-manylinux2010_x86_64.manylinux_2_12_x86_64.manylinux_2_28_x86_64.whl",
        "psutil==7.2.2",
        "076a2d2f923fd4821644f5ba89f059523da90dc9014e85f8e45a5774ca5bc6f9",
        "x86_64",
        ("manylinux2010_x86_64", "manylinux_2_12_x86_64"),
    ),
    Wheel(
        f"{_PSUTIL}-manylinux2014_aarch64.manylinux_2_17_aarch64.manylinux_2_28_aarch64.whl",
        "psutil==7.2.2",
        "b0726cecd84f9474419d67252add4ac0cd9811b04d61123054b9fb6f57df6e9e",
        "aarch64",
        ("manylinux2014_aarch64", "manylinux_2_17_aarch64"),
    ),
)
# Isolated from the user's folders and site packages; the session's folder comes first.
START = "import sys; sys.path.insert(0, sys.argv.pop(1)); from nvitop.cli import main; sys.exit(main())"


def arguments(python: str, folder: str, more: tuple[str, ...]) -> list[str]:
    """Argument list that starts nvitop from a session's folder."""
    return [python, "-I", "-c", START, folder, *more]


def pip_options(wheel: Wheel) -> list[str]:
    """Options by which pip downloads this wheel, and no other."""
    options = ["--no-deps", "--only-binary=:all:", "--require-hashes", "--disable-pip-version-check", "--quiet"]
    if wheel.platforms:
        options += ["--implementation=cp", "--abi=abi3", "--python-version=39"]
        options += [f"--platform={platform}" for platform in wheel.platforms]
    return options
