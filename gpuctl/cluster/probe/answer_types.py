"""Types of a pod's answers to the probe (pod/main.py); every answer is held against them."""

from __future__ import annotations

from typing import Literal, TypedDict

from gpuctl.engine import bounds


class Failure(TypedDict):
    """Why something could not be read."""

    why: str


class ExitedProgram(TypedDict):
    """A program that ended by itself."""

    code: bounds.ExitStatus
    text: str


class UnfinishedProgram(TypedDict):
    """A program that does not exist, took too long, or printed too much; see run_programs."""

    code: None
    why: Literal["none", "late", "excess"]
    text: str


class Script(TypedDict):
    """The file of a training script."""

    sha256: str
    size: bounds.Count


class Text(TypedDict):
    """Content of a file."""

    text: str


class Devices(TypedDict):
    """Device files of the container; None: the folder does not exist."""

    gpus: list[str]
    infiniband: list[str] | None
    verbs: list[str]


class SharedMemory(TypedDict):
    """Size and free bytes of /dev/shm."""

    bytes: bounds.Count
    free: bounds.Count


class Memlock(TypedDict):
    """Bytes that may be locked (None: unlimited), and the effective capabilities."""

    bytes: bounds.Count | None
    capabilities: str


class Folder(TypedDict):
    """The container's user id, and whether it may create files in a folder."""

    user: bounds.Count
    writable: bool


class SupervisedTraining(TypedDict):
    """A run that `gpuctl cluster train` started."""

    run: str
    actor: str
    about: str
    began: bounds.Moment


class ForeignTraining(TypedDict):
    """A rank that another launcher started; `token` marks ours of another pod."""

    pid: bounds.Count
    command: str
    token: str


class PodAnswer(TypedDict):
    """All facts of a pod; see pod/container.py and pod/network.py."""

    answers: dict[str, ExitedProgram | UnfinishedProgram]
    script: Script | Failure | None
    hostfile: Text | Failure
    programs: dict[str, str | None]
    devices: Devices
    shm: SharedMemory | Failure
    memlock: Memlock
    workspace: Folder | Failure
    trainings: list[SupervisedTraining | ForeignTraining]
    names: dict[str, list[str] | str]
    pod_env: dict[str, str]
    ds_env: list[str]
    no_ssh: bool | None
    reached: str | None


class Hold(TypedDict):
    """Answer to the request to listen on a port; see PortCheck."""

    wrong: str
