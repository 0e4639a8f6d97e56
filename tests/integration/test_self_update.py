"""gpuctl self-update, with a real git remote, and with real pip and a package index on loopback."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from gpuctl.cli.self_update import self_update
from gpuctl.core.errors import GpuctlError, InvalidInput
from gpuctl.edges import installation
from gpuctl.edges.installation import Environment
from gpuctl.workflows import self_update as flow
from tests.rig import small_gpuctl as small
from tests.rig.small_gpuctl import BROKEN, STARTS

FIRST, SECOND = "# Changelog\n\n- old\n", "# Changelog\n\n- **new**: faster\n- old\n"


@pytest.fixture(autouse=True)
def _state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUCTL_STATE_DIR", str(tmp_path / "state"))


@pytest.fixture
def venv(tmp_path: Path) -> Environment:
    return small.environment(tmp_path / "venv")


def run(venv: Environment, monkeypatch: pytest.MonkeyPatch, *words: str) -> Result:
    monkeypatch.setattr(installation, "current", lambda: venv)
    return CliRunner().invoke(self_update, list(words))


# ---- a package index -------------------------------------------------------------------------------------------------


@pytest.fixture
def shop(tmp_path: Path, venv: Environment, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Folder of an index that pip is configured to ask; version 1.0 is installed from it."""
    folder = tmp_path / "index"
    small.publish(folder, "1.0", STARTS, FIRST)
    with small.index(folder) as url:
        monkeypatch.setenv("PIP_INDEX_URL", url)
        monkeypatch.setenv("PIP_NO_CACHE_DIR", "1")
        monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
        small.install(venv, small.package(STARTS, FIRST))
        yield folder


def test_an_update_from_an_index_is_shown_done_and_taken_back(
    shop: Path, venv: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "gpuctl 1.0 is the latest version" in run(venv, monkeypatch).output
    small.publish(shop, "2.0", STARTS, SECOND)
    shown = run(venv, monkeypatch, "--check").output
    assert "gpuctl 1.0 -> 2.0" in shown
    assert "- **new**: faster" in shown
    assert "- old" not in shown
    assert small.report(venv) == '"1.0"'
    assert "gpuctl 2.0 is installed" in run(venv, monkeypatch, "--yes").output
    assert small.report(venv) == '"2.0"'
    assert "gpuctl 1.0 is back" in run(venv, monkeypatch, "--back", "--yes").output
    assert small.report(venv) == '"1.0"'
    assert list(venv.site.glob("gpuctl-*")) == [venv.site / "gpuctl-1.0.dist-info"]
    assert isinstance(run(venv, monkeypatch, "--back", "--yes").exception, InvalidInput)


def test_an_update_that_was_killed_is_taken_back_before_another(
    shop: Path, venv: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its record is as the kill left it, and a file of the new version is missing."""
    small.publish(shop, "2.0", STARTS, SECOND)
    flow.apply(venv, flow.plan(venv))
    record = flow._record()
    record.write_text(record.read_text().replace('"finished": true', '"finished": false'))
    installation.files_of(venv, venv.packages()["gpuctl"])[0].unlink()
    again = run(venv, monkeypatch, "--yes")
    assert isinstance(again.exception, InvalidInput)
    assert "--back" in again.exception.hint
    assert "gpuctl 1.0 is back" in run(venv, monkeypatch, "--back", "--yes").output
    assert small.report(venv) == '"1.0"'
    assert "gpuctl 1.0 -> 2.0" in run(venv, monkeypatch, "--check").output


@pytest.mark.parametrize(("code", "damaged", "wrong"), [(BROKEN, False, "does not start"), (STARTS, True, "(?i)hash")])
def test_a_version_that_does_not_start_or_has_another_hash_leaves_the_old_one(
    shop: Path, venv: Environment, code: str, damaged: bool, wrong: str
) -> None:
    small.publish(shop, "2.0", code, SECOND, damaged=damaged)
    with pytest.raises(GpuctlError, match=wrong):
        flow.apply(venv, flow.plan(venv))
    assert small.report(venv) == '"1.0"'
    with pytest.raises(InvalidInput):
        flow.last()


@pytest.mark.parametrize(
    ("installer", "advice"),
    [("uv", "uv tool upgrade"), ("dpkg", "apt-get"), ("conda", "conda update"), ("x", "with x")],
)
def test_what_another_program_installed_is_left_to_it(tmp_path: Path, installer: str, advice: str) -> None:
    own = Environment(tmp_path / "python", tmp_path, tmp_path)
    small.install(own, small.package(STARTS, FIRST))
    (tmp_path / "gpuctl-1.0.dist-info/INSTALLER").write_text(f"{installer}\n")
    with pytest.raises(InvalidInput) as caught:
        flow.plan(own)
    assert advice in caught.value.hint


def test_what_pipx_installed_is_left_to_it(tmp_path: Path) -> None:
    own = Environment(tmp_path / "python", tmp_path, tmp_path)
    small.install(own, small.package(STARTS, FIRST))
    (tmp_path / "pipx_metadata.json").write_text("{}")
    with pytest.raises(InvalidInput) as caught:
        flow.plan(own)
    assert caught.value.hint == "pipx installed it: pipx upgrade gpuctl"


# ---- a git checkout --------------------------------------------------------------------------------------------------


@pytest.fixture
def checkout(tmp_path: Path, venv: Environment) -> Path:
    """A clone of a remote, installed as editable."""
    remote = tmp_path / "remote"
    remote.mkdir()
    small.git(remote, "init", "-q")
    small.commit(remote, "1.0", STARTS, FIRST, "first")
    small.git(tmp_path, "clone", "-q", str(remote), "clone")
    small.install(venv, {"small.pth": f"{tmp_path}/clone\n"}, editable=tmp_path / "clone")
    return tmp_path / "clone"


def test_an_update_of_a_checkout_is_shown_done_and_taken_back(
    checkout: Path, venv: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "gpuctl 1.0 is the latest version" in run(venv, monkeypatch).output
    small.commit(checkout.parent / "remote", "2.0", STARTS, SECOND, "area: what is true now")
    before = small.git(checkout, "rev-parse", "HEAD")
    shown = run(venv, monkeypatch, "--check").output
    assert "gpuctl 1.0 -> 2.0 in " in shown
    assert "area: what is true now" in shown
    assert "- **new**: faster" in shown
    assert small.git(checkout, "rev-parse", "HEAD") == before
    assert "gpuctl 2.0 is installed" in run(venv, monkeypatch, "--yes").output
    assert small.report(venv) == '"2.0"'
    assert "gpuctl 1.0 is back" in run(venv, monkeypatch, "--back", "--yes").output
    assert (small.report(venv), small.git(checkout, "rev-parse", "HEAD")) == ('"1.0"', before)


def test_a_commit_that_does_not_start_is_taken_back(checkout: Path, venv: Environment) -> None:
    before = small.git(checkout, "rev-parse", "HEAD")
    small.commit(checkout.parent / "remote", "2.0", BROKEN, SECOND, "broken")
    with pytest.raises(GpuctlError, match="it does not start") as caught:
        flow.apply(venv, flow.plan(venv))
    assert "the version before is back" in caught.value.hint
    assert (small.report(venv), small.git(checkout, "rev-parse", "HEAD")) == ('"1.0"', before)
    assert small.git(checkout, "status", "--porcelain", "--untracked-files=no") == ""


@pytest.mark.parametrize("state", ["dirty", "ahead", "detached", "no remote", "no git"])
def test_a_checkout_that_would_lose_something_is_refused(checkout: Path, venv: Environment, state: str) -> None:
    small.commit(checkout.parent / "remote", "2.0", STARTS, SECOND, "second")
    if state == "dirty":
        (checkout / "CHANGELOG.md").write_text("mine\n")
    elif state == "ahead":
        small.commit(checkout, "1.1", STARTS, FIRST + "- mine\n", "mine")
    elif state == "detached":
        small.git(checkout, "checkout", "-q", "--detach")
    elif state == "no remote":
        small.git(checkout, "branch", "--unset-upstream")
    else:
        (checkout / ".git").rename(checkout / "git")
    before = (checkout / "CHANGELOG.md").read_text()
    with pytest.raises(InvalidInput):
        flow.plan(venv)
    assert (checkout / "CHANGELOG.md").read_text() == before


@pytest.mark.parametrize(
    "words",
    [
        ["--then"],
        ["bootstrap", "laptop"],
        ["--then", "audit"],
        ["--back", "--check"],
        ["--back", "--then", "bootstrap"],
    ],
)
def test_words_that_make_no_sense_are_refused(words: list[str]) -> None:
    assert isinstance(CliRunner().invoke(self_update, words).exception, InvalidInput)
