"""Update gpuctl itself, from its git checkout or a package index, and go back to the version before."""

from __future__ import annotations

import difflib
import json
import re
import tempfile
import time
import zipfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, NoReturn

from gpuctl.core.errors import GpuctlError, InvalidInput
from gpuctl.core.paths import private, state_dir, write_atomically
from gpuctl.edges import installation
from gpuctl.edges.git import Checkout
from gpuctl.edges.installation import DOING, Environment, Install
from gpuctl.edges.processes import Processes

NAME, CHANGES = "gpuctl", "CHANGELOG.md"
# Files whose change needs another installation of a checkout: its dependencies, version, links and command.
INSTALLS = ("pyproject.toml", "hatch_build.py", "galaxy.yml")
VERIFY_S = 60.0
FORM = 1


@dataclass(frozen=True)
class Update:
    """Changes of an update. `old`, `new`: versions; `commits` of a checkout, `packages` of an index.

    `packages`: name -> version before, "" if it is not installed, and after. `changes`: new lines of the changelog.
    `folder`: of the checkout, "" for an index. `start`, `end`: its commits.
    """

    old: str
    new: str
    commits: Sequence[str] = ()
    packages: dict[str, tuple[str, str]] = field(default_factory=dict)
    changes: Sequence[str] = ()
    folder: str = ""
    start: str = ""
    end: str = ""

    @property
    def is_empty(self) -> bool:
        return not self.commits and not self.packages


@dataclass(frozen=True)
class Record:
    """The last update, to go back from it. `archive`: files of the packages before, "" for a checkout.

    `finished`: False while it runs, and of one that was killed, whose archive must not be replaced.
    """

    update: Update
    when: int
    archive: str = ""
    finished: bool = False


def environment() -> Environment:
    """The environment that runs gpuctl."""
    return installation.current()


def go_on(arguments: Sequence[str]) -> NoReturn:
    """Replace this process by the new gpuctl with these arguments."""
    installation.become(environment(), arguments)


def plan(environment: Environment) -> Update:
    """Compare with the latest code; nothing is changed but git's copy of the remote."""
    check_finished()
    install = installation.examine(environment, NAME)
    if install.checkout is not None:
        return _of_checkout(Checkout(install.checkout))
    return _of_index(environment, install.version)


def check_finished() -> None:
    """`InvalidInput` after an update that was killed: what it left half done is no version to update from."""
    if _record().exists() and not last().finished:
        hint = "gpuctl self-update --back puts the version before it back"
        raise InvalidInput(DOING, "the last update was interrupted", hint)


def apply(environment: Environment, update: Update) -> None:
    """Update, and verify that the new version starts; if anything fails, the version before is put back."""
    if update.folder:
        _update_checkout(environment, update)
    else:
        _update_packages(environment, update)


# ---- a git checkout --------------------------------------------------------------------------------------------------


def _of_checkout(checkout: Checkout) -> Update:
    _check_clean(checkout)
    upstream = checkout.upstream()
    if not upstream:
        wrong = f"the checkout {checkout.folder} is on no branch that follows a remote one"
        raise InvalidInput(DOING, wrong, "git switch main, or git branch --set-upstream-to=REMOTE/BRANCH")
    checkout.fetch()
    start, end = checkout.head(), checkout.ask("read the remote branch", "rev-parse", upstream).strip()
    if own := checkout.commits(upstream, "HEAD"):
        wrong = f"the checkout has {len(own)} commits that {upstream} has not: {own[0]}"
        raise InvalidInput(DOING, wrong, "push them, or rebase by hand")
    texts = [checkout.text(commit, CHANGES) for commit in (start, end)]
    return Update(
        _version(checkout.text(start, "galaxy.yml")),
        _version(checkout.text(end, "galaxy.yml")),
        commits=checkout.commits("HEAD", upstream),
        changes=_new_lines(*texts),
        folder=str(checkout.folder),
        start=start,
        end=end,
    )


def _check_clean(checkout: Checkout) -> None:
    if changed := checkout.changed_files():
        wrong = f"the checkout {checkout.folder} has changes of its own: {', '.join(changed[:6])}"
        raise InvalidInput(DOING, wrong, "commit them, or undo them")


def _version(galaxy: str) -> str:
    match = re.search(r"^version: (\S+)$", galaxy, re.MULTILINE)
    return match[1] if match else "?"


def _update_checkout(environment: Environment, update: Update) -> None:
    checkout = Checkout(Path(update.folder))
    _check_clean(checkout)
    if checkout.head() != update.start:
        raise InvalidInput(DOING, "the checkout has moved since it was shown", "run it again")
    record = Record(update, round(time.time()))
    _save(record)
    try:
        checkout.forward(update.end)
        _install(environment, checkout, update.start, update.end)
        _verify(environment)
        _save(replace(record, finished=True))
    except BaseException as error:
        checkout.reset(update.start)
        _install(environment, checkout, update.end, update.start)
        _forget()
        if isinstance(error, GpuctlError):
            raise _undone(error) from error
        raise


def _install(environment: Environment, checkout: Checkout, before: str, after: str) -> None:
    """Install the checkout again if that is needed after a move from one commit to another."""
    if checkout.differs(before, after, *INSTALLS):
        environment.pip("install", "--quiet", "--editable", str(checkout.folder))


# ---- a package index -------------------------------------------------------------------------------------------------


def _of_index(environment: Environment, version: str) -> Update:
    report = environment.pip("install", "--quiet", "--dry-run", "--upgrade", "--report", "-", NAME)
    try:
        listed: list[dict[str, Any]] = json.loads(report)["install"]
        new = {installation.plain(one["metadata"]["name"]): str(one["metadata"]["version"]) for one in listed}
    except (ValueError, KeyError, TypeError) as error:
        raise GpuctlError(DOING, f"pip's report is not understood: {error!r}", "update pip to 23 or later") from error
    installed = environment.packages()
    packages = {name: (installed[name].version if name in installed else "", after) for name, after in new.items()}
    if NAME not in packages:
        return Update(version, version)
    return Update(version, new[NAME], packages=packages, changes=_changes(environment, new[NAME]))


def _changes(environment: Environment, version: str) -> list[str]:
    """New lines of the changelog that the new wheel carries; none if it carries none."""
    own = environment.site / NAME / CHANGES
    before = own.read_text() if own.exists() else ""
    with tempfile.TemporaryDirectory() as folder:
        environment.pip("download", "--quiet", "--no-deps", "--dest", folder, f"{NAME}=={version}")
        for wheel in Path(folder).glob("*.whl"):
            with zipfile.ZipFile(wheel) as content:
                if f"{NAME}/{CHANGES}" in content.namelist():
                    return _new_lines(before, content.read(f"{NAME}/{CHANGES}").decode(errors="replace"))
    return []


def _update_packages(environment: Environment, update: Update) -> None:
    folder = private(_folder())
    archive = folder / f"before-{update.new}.tar"
    installation.keep(environment, update.packages, archive)
    record = Record(update, round(time.time()), str(archive))
    _save(record)
    exact = [f"{name}=={after}" for name, (_, after) in update.packages.items()]
    try:
        environment.pip("install", "--quiet", *exact)
        _verify(environment)
        _save(replace(record, finished=True))
    except BaseException as error:
        installation.put_back(environment, update.packages, archive)
        _forget()
        if isinstance(error, GpuctlError):
            raise _undone(error) from error
        raise


# ---- both ------------------------------------------------------------------------------------------------------------


def _verify(environment: Environment) -> None:
    """The new version can be started."""
    code = "from gpuctl.cli.app import app; app(['--help'], standalone_mode=False)"
    done = Processes().run([str(environment.python), "-I", "-c", code], b"", VERIFY_S)
    if done.code:
        lines = done.err.splitlines() or ["no message"]
        raise GpuctlError(DOING, f"the new version does not start: {lines[-1]}")
    if done.code is None:
        raise GpuctlError(DOING, f"the new version does not start within {VERIFY_S:g} s")


def _undone(error: GpuctlError) -> GpuctlError:
    """The error, with what became of the update."""
    return GpuctlError(error.doing, error.wrong, f"the version before is back. {error.hint}".strip())


def _new_lines(before: str, after: str) -> list[str]:
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=0)
    return [line[1:] for line in lines if line.startswith("+") and not line.startswith("+++") and line[1:].strip()]


# ---- going back ------------------------------------------------------------------------------------------------------


def last() -> Record:
    """The update to go back from; `InvalidInput` if there is none."""
    hint = "only the last update can be taken back"
    try:
        plain: Any = json.loads(_record().read_text())
        update = plain["update"]
        packages = {name: (before, after) for name, (before, after) in update["packages"].items()}
        return Record(Update(**{**update, "packages": packages}), plain["when"], plain["archive"], plain["finished"])
    except FileNotFoundError as error:
        raise InvalidInput("go back", "gpuctl self-update has changed nothing", hint) from error
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InvalidInput("go back", f"the record {_record()} is damaged: {error!r}", hint) from error


def back(environment: Environment, record: Record) -> None:
    """Put the version before the last update back, also one that was killed; `InvalidInput` if it was changed since."""
    update = record.update
    if update.folder:
        checkout = Checkout(Path(update.folder))
        _check_clean(checkout)
        ends = (update.end,) if record.finished else (update.start, update.end)
        if checkout.head() not in ends or installation.examine(environment, NAME).checkout != checkout.folder:
            raise InvalidInput("go back", "the checkout was moved since the update", "use git there")
        checkout.reset(update.start)
        _install(environment, checkout, update.end, update.start)
    else:
        if record.finished:  # else its packages may be half installed
            _check_version(installation.examine(environment, NAME), update)
        installation.put_back(environment, update.packages, Path(record.archive))
    _forget()


def _check_version(install: Install, update: Update) -> None:
    if install.checkout is not None or install.version not in (update.new, update.old):
        wrong = f"version {install.version} is installed, not {update.new} of the update"
        raise InvalidInput("go back", wrong, f"pip install gpuctl=={update.old}")


def _folder() -> Path:
    return state_dir() / "self-update"


def _record() -> Path:
    return _folder() / "last.json"


def _save(record: Record) -> None:
    private(_folder())
    for old in _folder().glob("before-*.tar"):
        if str(old) != record.archive:
            old.unlink()
    write_atomically(_record(), json.dumps({"form": FORM, **asdict(record)}))


def _forget() -> None:
    _record().unlink(missing_ok=True)
    for archive in _folder().glob("before-*.tar"):
        archive.unlink()
