"""Cluster files go by their names, as inventories do."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuctl.cluster.clusterfile import locate
from gpuctl.core.errors import InvalidInput
from tests.rig.cluster.files import write


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """An empty working folder and an empty config folder."""
    here, config = tmp_path / "here", tmp_path / "config"
    (here / "clusters").mkdir(parents=True)
    (config / "clusters").mkdir(parents=True)
    monkeypatch.chdir(here)
    monkeypatch.setenv("GPUCTL_CONFIG_DIR", str(config))
    return here, config


def test_a_name_is_found_here_and_among_ones_own(places: tuple[Path, Path]) -> None:
    here, config = places
    write(here / "clusters").rename(here / "clusters/lab.yaml")
    write(config / "clusters").rename(config / "clusters/prod.yml")
    assert locate.cluster("lab").cluster.name == "lab"
    assert locate.find("prod") == config / "clusters/prod.yml"
    assert {"lab", "prod"} <= {each.name for each in locate.all_of_them()}


def test_a_name_in_two_places_is_refused_with_both(places: tuple[Path, Path]) -> None:
    for place in places:
        write(place / "clusters")
    with pytest.raises(InvalidInput) as refused:
        locate.find("lab")
    assert all(str(place / "clusters/lab.yaml") in refused.value.wrong for place in places)


def test_an_unknown_name_lists_those_there_are(places: tuple[Path, Path]) -> None:
    write(places[1] / "clusters")
    with pytest.raises(InvalidInput) as refused:
        locate.find("labb")
    assert "lab" in refused.value.hint


def test_a_file_that_cannot_be_used_is_listed_with_its_mistakes(places: tuple[Path, Path]) -> None:
    (places[0] / "clusters/broken.yaml").write_text("cluster: {name: broken}\n")
    (listed,) = [each for each in locate.all_of_them() if each.name == "broken"]
    assert listed.read.cluster is None
    assert listed.read.mistakes


def test_a_folder_is_no_cluster(places: tuple[Path, Path]) -> None:
    (places[0] / "clusters/old").mkdir()
    assert "old" not in {each.name for each in locate.all_of_them()}
