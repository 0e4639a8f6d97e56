"""The user's settings: defaults without a file, every mistake at once, stages by pattern."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from gpuctl.core import settings
from gpuctl.core.errors import InvalidInput


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GPUCTL_CONFIG_DIR", str(tmp_path))
    return tmp_path / "settings.yml"


def test_defaults_apply_without_a_file(file: Path) -> None:
    assert not file.exists()
    assert settings.load() == settings.Settings()


@pytest.mark.parametrize("text", ["", "\n", "# workspace: ~/src\n", "---\n# nothing yet\n"])
def test_an_empty_file_and_one_of_comments_are_refused_as_an_empty_settings_file(file: Path, text: str) -> None:
    file.write_text(text)
    with pytest.raises(InvalidInput, match="is an empty settings file; add a setting, or remove the file"):
        settings.load()


def test_a_setting_replaces_only_its_own_default(file: Path) -> None:
    file.write_text("workspace: ~/src\nrepositories: {infra: ~/src/infra}\nkeys_without_prefix: off\nask: [llm, -x]\n")
    found = settings.load()
    assert found.workspace == Path.home() / "src"
    assert found.repositories == {"infra": Path.home() / "src/infra"}
    assert found.keys_without_prefix is False
    assert found.ask == ("llm", "-x")
    assert found.contexts == settings.Settings().contexts


def test_every_mistake_is_reported_with_its_line(file: Path) -> None:
    file.write_text("workspce: x\ncontexts: {prodution: [a]}\nkeys_without_prefix: maybe\nask: llm\n")
    with pytest.raises(InvalidInput) as raised:
        settings.load()
    told = str(raised.value)
    assert f"{file}:1: workspce is not known; did you mean workspace?" in told
    assert f"{file}:2: contexts.prodution is not known; did you mean production?" in told
    assert f"{file}:3: keys_without_prefix is neither true nor false" in told
    assert f"{file}:4: ask is not a list of arguments" in told


@pytest.mark.parametrize(
    ("context", "stage"),
    [
        ("arn:aws:eks:us-east-1:1:cluster/PROD-a", "production"),
        ("gke_stage_x", "staging"),
        ("kind-dev", "development"),
        ("minikube", "development"),
        ("somewhere", ""),
    ],
)
def test_a_context_has_the_stage_of_its_name(context: str, stage: str) -> None:
    assert settings.Settings().stage(context) == stage


def test_a_name_that_could_be_production_is_production() -> None:
    given = settings.Settings(contexts={"production": ["*prod*"], "development": ["dev-*"]})
    assert given.stage("dev-prod-copy") == "production"


def test_the_documented_settings_are_the_defaults(file: Path) -> None:
    page = (Path(__file__).parents[3] / "docs/settings.md").read_text()
    file.write_text(page.partition("```yaml\n")[2].partition("```")[0])
    assert settings.load() == settings.Settings()


@pytest.mark.parametrize("make", [Path.mkdir, lambda path: path.write_bytes(b"\xff")])
def test_an_unreadable_file_is_refused_and_not_taken_for_a_missing_one(
    file: Path, make: Callable[[Path], object]
) -> None:
    make(file)
    with pytest.raises(InvalidInput, match=r"settings\.yml"):
        settings.load()
