"""Programs that build and push container images: docker, podman and buildah."""

from __future__ import annotations

import base64
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from gpuctl.core.errors import GpuctlError, InvalidInput, Unreachable
from gpuctl.core.paths import write_atomically
from gpuctl.core.redact import removed
from gpuctl.edges import terminal
from gpuctl.edges.processes import Done, Processes
from gpuctl.edges.programs import gist

# How a builder shows that it can work: docker needs a daemon, and podman on macOS a virtual machine.
PROBES: Mapping[str, Sequence[str]] = {
    "docker": ("version", "--format", "{{.Server.Version}}"),
    "podman": ("info", "--format", "{{.Host.Arch}}"),
    "buildah": ("version",),
}
INSTALL = "install one: `apt install buildah` or podman, `dnf install buildah`, or Docker; on macOS Docker Desktop"
PROBE_S, PULL_S, SHORT_S = 30.0, 3600.0, 60.0
AUTH_FILE, LOGIN_FILES = "auth.json", {"docker": "config.json"}
FOLDER = "gpuctl-image-"  # and the number of the process that uses it
NO_TLS = "--tls-verify=false"
ABOVE = "its messages are above"


@dataclass(frozen=True)
class Login:
    """A login for one push. Its files are in a folder of that push alone, which is removed afterwards."""

    host: str
    user: str
    password: str


@dataclass(frozen=True)
class Builder:
    """A builder by its name. `plain_http`: the registry is of this machine, and has no TLS."""

    name: str

    def digest(self, image: str, name: str, *, plain_http: bool) -> str:
        """Digest of an image, which is pulled from its registry if it has one; "" for none. `name`: without its tag."""
        doing = f"resolve the image {image}"
        pulled = self._run([*self._command("pull", plain_http=plain_http), image], PULL_S)
        if pulled.code != 0:  # a digest of an earlier pull may be an old one
            hint = "check its name, and log in to its registry: `{} login HOST`"
            raise Unreachable(doing, _gist(pulled), hint.format(self.name))
        if self.name == "buildah":
            shown = self._run(["buildah", "inspect", "--type", "image", "--format", "{{.FromImageDigest}}", image])
            return shown.out.decode().strip() if shown.code == 0 else ""
        shown = self._run([self.name, "image", "inspect", "--format", "{{json .RepoDigests}}", image])
        digests = json.loads(shown.out or b"[]") or [] if shown.code == 0 else []
        pairs = [str(one).partition("@") for one in digests]  # docker.io is left out in Docker's names
        return next((digest for of, _, digest in pairs if name == of or name.endswith(f"/{of}")), "")

    def image_id(self, image: str) -> str:
        """Id of an image of this machine, 64 hexadecimal digits; "" if it does not exist."""
        if self.name == "buildah":
            shown = self._run(["buildah", "inspect", "--type", "image", "--format", "{{.FromImageID}}", image])
        else:
            shown = self._run([self.name, "image", "inspect", "--format", "{{.Id}}", image])
        return shown.out.decode().strip().removeprefix("sha256:") if shown.code == 0 else ""

    def build(self, folder: Path, dockerfile: Path, tag: str, arguments: Mapping[str, str]) -> None:
        """Build an image; the builder's messages go to standard error. An interrupted build leaves no image."""
        values = [word for name, value in arguments.items() for word in ("--build-arg", f"{name}={value}")]
        doing, before = f"build the image {tag}", self._state(tag)
        with _private_folder() as place:
            written = place / "id"
            argv = [self.name, "build", "--file", str(dockerfile), "--tag", tag, "--iidfile", str(written), *values]
            if code := self._follow([*argv, str(folder)]):
                hint = f"{ABOVE}; steps that were built are taken from the cache next time"
                raise GpuctlError(doing, f"{self.name} ended with exit code {code}", hint)
            built = written.read_text().strip().removeprefix("sha256:") if written.is_file() else ""
        after = self._state(tag)
        # Docker's store of containerd has ids of other objects than its builder: that the name was set anew counts too.
        if not after[0] or (after[0] != built and after == before):
            wrong = f"{self.name} ended well, and this machine does not have the image that it built"
            hint = "builders such as docker-container keep it in their cache: `docker buildx use default`, or --builder"
            raise GpuctlError(doing, wrong, hint)

    def _state(self, image: str) -> tuple[str, str]:
        """Id of an image of this machine, and with docker the time at which it got its name; "" for none."""
        if self.name != "docker":
            return self.image_id(image), ""
        shown = self._run(["docker", "image", "inspect", "--format", "{{.Metadata.LastTagTime}}", image])
        return self.image_id(image), shown.out.decode().strip() if shown.code == 0 else ""

    def push(self, image: str, target: str, login: Login | None, *, plain_http: bool) -> str:
        """Push an image, and return the digest under which the registry has it. `login`: None for the user's."""
        with _private_folder() as folder:
            if login is not None:
                _write_login(login, folder / LOGIN_FILES.get(self.name, AUTH_FILE))
            return self._push(image, target, folder if login else None, plain_http=plain_http)

    def _push(self, image: str, target: str, folder: Path | None, *, plain_http: bool) -> str:
        doing = f"push the image to {target}"
        if self.name == "docker":
            return self._push_by_docker(image, target, folder, doing)
        with _private_folder() as place:
            file = place / "digest"
            argv = [
                *self._command("push", plain_http=plain_http, folder=folder),
                "--digestfile",
                str(file),
                image,
                f"docker://{target}",
            ]
            self._checked(argv, doing)
            return file.read_text().strip()

    def _push_by_docker(self, image: str, target: str, folder: Path | None, doing: str) -> str:
        before, same = self.image_id(target), self.image_id(image)
        if before != same:
            self._name(image, target, doing)
        try:
            self._checked([*self._command("push", plain_http=False, folder=folder), target], doing)
            shown = self._run(["docker", "image", "inspect", "--format", "{{json .RepoDigests}}", target])
            digests = json.loads(shown.out or b"[]") if shown.code == 0 else []
            name = target.rpartition(":")[0]
            return next((str(one).partition("@")[2] for one in digests if str(one).startswith(f"{name}@")), "")
        finally:  # the name of the push goes, and an image that had it before gets it back
            if not before:
                self._run(["docker", "image", "rm", "--no-prune", target])
            elif before != same:
                self._name(f"sha256:{before}", target, f"give {target} back to the image that had it")

    def _name(self, image: str, name: str, doing: str) -> None:
        done = self._run(["docker", "tag", image, name])
        if done.code != 0:
            raise GpuctlError(doing, _gist(done))

    def _checked(self, argv: Sequence[str], doing: str) -> None:
        if code := self._follow(argv):
            hint = f"{ABOVE}; run it again: layers that the registry has are not sent twice"
            raise Unreachable(doing, f"{self.name} ended with exit code {code}", hint)

    def _command(self, command: str, *, plain_http: bool, folder: Path | None = None) -> list[str]:
        """The program with a command; `folder`: of a login that is not the user's."""
        if self.name == "docker":  # which needs no TLS for 127.0.0.0/8 by itself
            return ["docker", *(["--config", str(folder)] if folder else []), command]
        auth = ["--authfile", str(folder / AUTH_FILE)] if folder else []
        return [self.name, command, *auth, *([NO_TLS] if plain_http else [])]

    def _run(self, argv: Sequence[str], limit_s: float = SHORT_S) -> Done:
        return Processes().run(argv, b"", limit_s, self._environment())

    def _follow(self, argv: Sequence[str]) -> int:
        return terminal.feed(argv, "", stdout=sys.stderr.fileno(), environment=self._environment())

    def _environment(self) -> dict[str, str]:
        """With docker, the address of the user's context: a login of another folder does not know contexts."""
        environment = dict(os.environ)
        if self.name == "docker" and "DOCKER_HOST" not in environment:
            argv = ["docker", "context", "inspect", "--format", "{{.Endpoints.docker.Host}}"]
            shown = Processes().run(argv, b"", SHORT_S)
            if shown.code == 0 and (address := shown.out.decode().strip()):
                environment["DOCKER_HOST"] = address
        return environment


def detect(name: str = "") -> Builder:
    """The first builder that works, or the named one; `InvalidInput` with the reason of each if none does."""
    reasons = []
    for one, probe in PROBES.items():
        if name not in ("", one):
            continue
        if shutil.which(one) is None:
            reasons.append(f"{one}: not installed")
            continue
        done = Processes().run([one, *probe], b"", PROBE_S)
        if done.code == 0:
            return Builder(one)
        reasons.append(f"{one}: {_gist(done)}")
    raise InvalidInput("build or push an image", f"no builder works ({'; '.join(reasons)})", INSTALL)


def _gist(done: Done) -> str:
    return (
        removed(gist(done.err).removeprefix("Error: "))[0]
        if done.code is not None
        else f"no answer within {done.limit or SHORT_S:g} s"
    )


def _write_login(login: Login, path: Path) -> None:
    """Write a login as the builders read it. Not by their `login`: docker's hands it to a credential helper of the
    machine, also with another folder, and that keeps it."""
    auth = base64.b64encode(f"{login.user}:{login.password}".encode()).decode()
    write_atomically(path, json.dumps({"auths": {login.host: {"auth": auth}}}), 0o600)


def _places() -> list[Path]:
    """Folders for private files, the best first: a runtime folder is in memory, and goes when the user logs out."""
    runtime = Path(os.environ.get("XDG_RUNTIME_DIR") or "/nowhere")
    usable = runtime.is_absolute() and os.access(runtime, os.W_OK | os.X_OK)
    return [*([runtime] if usable else []), Path(tempfile.gettempdir())]


@contextmanager
def _private_folder() -> Iterator[Path]:
    """A folder that only this user can read, removed with all that is in it.

    Those of processes that were killed are removed first.
    """
    for place in _places():
        for left in place.glob(f"{FOLDER}*"):
            _remove_if_left(left)
    with tempfile.TemporaryDirectory(prefix=f"{FOLDER}{os.getpid()}-", dir=_places()[0]) as folder:
        yield Path(folder)


def _remove_if_left(folder: Path) -> None:
    number = folder.name.removeprefix(FOLDER).partition("-")[0]
    with suppress(OSError):  # it went meanwhile
        ours = folder.lstat().st_uid == os.getuid() and folder.is_dir() and not folder.is_symlink()
        if ours and number.isdecimal() and not _runs(int(number)):
            shutil.rmtree(folder)


def _runs(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        pass
    return True
