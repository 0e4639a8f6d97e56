"""Access to a machine: every file that is read or written and every program that is run goes through `Host`."""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from glob import escape, glob
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import subprocess

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
SCRATCH = ("/dev/shm", "/run", "/tmp")  # noqa: S108 - only for folders that mkdtemp makes private
_SECRET = re.compile(r"(?<=//)[^/\s]*@")
_CHOSEN = re.compile(r"\[([^\]]+)\]")


class Result(NamedTuple):
    """Exit code and output of a program.

    `code` is 127 if the host does not have it, 124 after a timeout, 125 if it was stopped because it printed too much.
    `out` is whole, or empty.
    """

    code: int
    out: str
    err: str

    @property
    def ok(self) -> bool:
        return self.code == 0

    @property
    def last_line(self) -> str:
        """Last line of its stderr, or of its output if that is empty, for an error message."""
        lines = (self.err.strip() or self.out.strip()).splitlines()
        return lines[-1] if lines else f"exit status {self.code}"

    @property
    def without_secrets(self) -> Result:
        """The result without users and passwords in addresses of repositories, which dnf prints with an error."""
        return self._replace(out=_SECRET.sub("", self.out), err=_SECRET.sub("", self.err))


class Host:
    """A machine, given by its root folder; tests use `Host(tmp_path)`.

    Paths are absolute on the host. With a root other than "/", programs are looked up only below that root, so
    that a test never runs a program of the real machine.
    """

    def __init__(self, root: str | os.PathLike[str] = "/") -> None:
        self.root = os.fspath(root).rstrip("/")

    def real(self, path: str) -> str:
        """The path on this machine of a path on the host."""
        return self.root + path

    def read(self, path: str) -> str:
        """The content of a file; OSError with the host's path. Bytes that are not UTF-8 survive a round trip."""
        # Unbuffered: a visit reads thousands of kernel files, and a text stream takes twice as long.
        try:
            with open(self.real(path), "rb", buffering=0) as stream:
                return stream.read().decode("utf-8", "surrogateescape")
        except OSError as error:
            error.filename = path  # a failing read does not set it
            raise

    def read_or_none(self, path: str) -> str | None:
        """The content of a file, or None if it does not exist; any other failure is an OSError."""
        try:
            return self.read(path)
        except (FileNotFoundError, NotADirectoryError, ProcessLookupError):  # the last: the process has just ended
            return None

    def value(self, path: str) -> str | None:
        """A kernel file's value: the choice in brackets if there is one, white space folded; None if it is missing."""
        text = self.read_or_none(path)
        if text is None:
            return None
        chosen = _CHOSEN.search(text)
        return chosen.group(1) if chosen else " ".join(text.split())

    def exists(self, path: str) -> bool:
        return os.path.exists(self.real(path))

    def read_regular(self, path: str, limit: int) -> str | None:
        """The content of a regular file; None if the path is missing, or a folder, device or pipe.

        OverflowError if the file is larger than `limit` bytes.
        """
        try:
            descriptor = os.open(self.real(path), os.O_RDONLY | os.O_NONBLOCK)  # a pipe would block
        except (FileNotFoundError, NotADirectoryError):
            return None
        try:
            facts = os.fstat(descriptor)
            if not stat.S_ISREG(facts.st_mode):
                return None
            if facts.st_size > limit:
                raise OverflowError(path)
            return os.read(descriptor, facts.st_size).decode("utf-8", "surrogateescape")
        finally:
            os.close(descriptor)

    def is_script(self, path: str) -> bool:
        """True for a readable regular file that begins with "#!"."""
        try:
            descriptor = os.open(self.real(path), os.O_RDONLY | os.O_NONBLOCK)
        except OSError:
            return False
        try:
            return stat.S_ISREG(os.fstat(descriptor).st_mode) and os.read(descriptor, 2) == b"#!"
        finally:
            os.close(descriptor)

    def is_executable(self, path: str) -> bool:
        """True for a regular file with an executable bit."""
        try:
            mode = os.stat(self.real(path)).st_mode
        except OSError:
            return False
        return stat.S_ISREG(mode) and bool(mode & 0o111)

    def listdir(self, path: str) -> list[str]:
        """Names in a folder, sorted; empty if the folder is missing."""
        try:
            return sorted(os.listdir(self.real(path)))
        except (FileNotFoundError, NotADirectoryError):
            return []

    def glob(self, pattern: str) -> list[str]:
        """Host paths that match a shell pattern, sorted."""
        return sorted(p[len(self.root) :] for p in glob(escape(self.root) + pattern))

    def readlink(self, path: str) -> str:
        """The target of a link, unresolved."""
        return os.readlink(self.real(path))

    @contextlib.contextmanager
    def changing(self, what: str) -> Iterator[None]:
        """Surrounds every change; tests kill the process before and after each."""
        yield

    def write(self, path: str, text: str) -> None:
        """Write a kernel file in one write call, as /proc and /sys require; never creates a file."""
        with self.changing(f"write {path}"):
            descriptor = os.open(self.real(path), os.O_WRONLY | os.O_TRUNC)
            try:
                os.write(descriptor, text.encode())
            finally:
                os.close(descriptor)

    def replace(self, path: str, text: str, mode: int = 0o644, owner: tuple[int, int] | None = None) -> None:
        """Replace a file atomically, durable over a power loss; creates its folders (0755)."""
        with self.changing(f"replace {path}"):
            real = self.real(path)
            folder, name = os.path.split(real)
            self._make_folders(folder)
            # A fixed name, so that the next run can remove the file of a killed one.
            temporary = os.path.join(folder, f".{name}.gpuctl")
            self.clear(path)
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
            try:
                with os.fdopen(descriptor, "w", encoding="utf-8", errors="surrogateescape", newline="") as stream:
                    if owner is not None and owner != (os.geteuid(), os.getegid()):
                        os.fchown(stream.fileno(), *owner)
                    os.fchmod(stream.fileno(), mode)
                    stream.write(text)
                    stream.flush()
                    os.fsync(stream.fileno())
                os.replace(temporary, real)
            except BaseException:
                with contextlib.suppress(OSError):
                    os.unlink(temporary)
                raise
            sync_folder(folder)

    def clear(self, path: str) -> None:
        """Remove the temporary file of a run that was killed inside `replace`."""
        folder, name = os.path.split(self.real(path))
        with contextlib.suppress(FileNotFoundError):
            os.unlink(os.path.join(folder, f".{name}.gpuctl"))

    def _make_folders(self, folder: str) -> None:
        missing = []
        while not os.path.isdir(folder):
            missing.append(folder)
            folder = os.path.dirname(folder)
        for path in reversed(missing):
            os.mkdir(path, 0o755)
            sync_folder(os.path.dirname(path))

    def make_private_folder(self, path: str) -> None:
        """Create a folder that only its owner can enter, or change an existing one to that."""
        real = self.real(path)
        self._make_folders(os.path.dirname(real))
        with contextlib.suppress(FileExistsError):
            os.mkdir(real, 0o700)
            sync_folder(os.path.dirname(real))
        if os.stat(real).st_mode & 0o777 != 0o700:
            os.chmod(real, 0o700)

    def make_folder(self, path: str) -> None:
        """Create a folder (0755) with its parents."""
        with self.changing(f"create {path}"):
            self._make_folders(self.real(path))

    def remove_folder(self, path: str) -> None:
        """Remove a folder if it exists and is empty."""
        real = self.real(path)
        with self.changing(f"remove {path}"), contextlib.suppress(FileNotFoundError):
            if not os.listdir(real):
                os.rmdir(real)
                sync_folder(os.path.dirname(real))

    def can_write(self, path: str) -> bool:
        """True if a path, or the nearest existing folder above it, can be written: a disk may be read-only."""
        while path != "/" and not self.exists(path):
            path = os.path.dirname(path)
        return os.access(self.real(path), os.W_OK)

    def remove(self, path: str) -> None:
        """Remove a file, if it exists."""
        with self.changing(f"remove {path}"), contextlib.suppress(FileNotFoundError):
            os.unlink(self.real(path))
            sync_folder(os.path.dirname(self.real(path)))

    @contextlib.contextmanager
    def scratch_folder(self) -> Iterator[str]:
        """The path on this machine of a private folder, removed at the end; in memory if the host has /dev/shm."""
        import shutil
        import tempfile  # slow to load, and few visits need it

        parent = next((path for path in SCRATCH if os.access(self.real(path), os.W_OK | os.X_OK)), SCRATCH[-1])
        try:
            folder = tempfile.mkdtemp(prefix="gpuctl-", dir=self.real(parent))
        except OSError as error:
            error.filename = parent
            raise
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def run(
        self,
        *argv: str,
        changes: bool = False,
        stdin: str = "",
        limit: float = 60,
        environment: Mapping[str, str] | None = None,
    ) -> Result:
        """Run a program (no shell) and wait at most `limit` seconds. `changes` marks one that changes the host.

        `environment` adds to the environment of every program; secrets belong there, never on the command line.
        """
        around = self.changing("run " + " ".join(argv)) if changes else contextlib.nullcontext()
        with around:
            return self._run(argv, stdin, limit, environment or {}, changes)

    def _run(self, argv: Sequence[str], stdin: str, limit: float, added: Mapping[str, str], changes: bool) -> Result:
        process = self._start(argv, added)
        return process if isinstance(process, Result) else _result(process, argv[0], stdin, limit, changes)

    def _start(self, argv: Sequence[str], added: Mapping[str, str]) -> subprocess.Popen[bytes] | Result:
        import subprocess  # slow to load; most visits that change nothing start no program

        path = ":".join(self.root + p for p in PATH.split(":"))
        program = self.which(argv[0])
        if program is None:
            return Result(127, "", f"{argv[0]}: not on this host")
        environment = {
            "PATH": path,
            "LC_ALL": "C.UTF-8",
            "LANG": "C.UTF-8",
            "DEBIAN_FRONTEND": "noninteractive",
            # A unit file takes precedence over a SysV script of the same name, whose links are not ours to change.
            "SYSTEMCTL_SKIP_SYSV": "1",
            # Otherwise Ubuntu restarts services after every installation, even while jobs run.
            "NEEDRESTART_SUSPEND": "1",
            "NEEDRESTART_MODE": "l",
            **added,
        }
        if self.root:
            environment["GPUCTL_ROOT"] = self.root
        pipe = subprocess.PIPE
        try:
            return subprocess.Popen(
                [program, *argv[1:]],
                env=environment,
                stdin=pipe,
                stdout=pipe,
                stderr=pipe,
                start_new_session=True,  # signals to us do not reach it: it finishes
            )
        except OSError as error:
            return Result(126, "", f"{argv[0]}: {error.strerror}")

    def which(self, program: str) -> str | None:
        """Path on this machine of a program below the root; None if the host does not have it."""
        folders = [""] if program.startswith("/") else [p + "/" for p in PATH.split(":")]
        candidates = [self.root + folder + program for folder in folders]
        return next((c for c in candidates if os.access(c, os.X_OK) and os.path.isfile(c)), None)


def _result(process: subprocess.Popen[bytes], name: str, stdin: str, limit: float, changes: bool) -> Result:
    import subprocess

    from .bounded_output import MOST_BYTES, Exchange, TooMuchOutput

    most = f"{MOST_BYTES >> 20} MiB"
    try:
        out, err = Exchange(process, to_its_end=changes).run(stdin.encode("utf-8", "replace"), limit)
        return Result(process.returncode, _text(out), _text(err))
    except subprocess.TimeoutExpired:
        code, message = 124, f"{name} gave no answer within {limit:g} s"
    except TooMuchOutput:
        if changes:  # it has ended; how is more than what it printed
            return Result(process.returncode, "", f"{name} printed more than {most}, which was dropped")
        code, message = 125, f"{name} printed more than {most} and was stopped"
    process.kill()
    # A process that hangs inside a driver survives even SIGKILL: leave it behind.
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(timeout=2)
    return Result(code, "", message)


def _text(output: bytes) -> str:
    return output.decode("utf-8", "replace").replace("\r\n", "\n").replace("\r", "\n")


def sync_folder(folder: str) -> None:
    """Make a rename or removal in a folder survive a power loss."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
