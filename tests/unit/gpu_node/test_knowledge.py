"""The rows about drivers, GPUs and packages: strict, with a source, and consistent with each other."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from gpuctl.core.errors import InvalidInput
from gpuctl.gpu_node.knowledge import DISTRIBUTIONS, FILES, FOLDER, knowledge, load
from gpuctl.gpu_node.model import PciGpu

KNOWN = knowledge()


def test_every_file_is_read() -> None:
    assert sorted(path.name for path in FOLDER.iterdir()) == sorted(FILES)


@pytest.mark.parametrize("name", FILES)
def test_a_row_without_source_is_refused(name: str, tmp_path: Path) -> None:
    shutil.copytree(FOLDER, tmp_path / "rows")
    path = tmp_path / "rows" / name
    lines = path.read_text().splitlines(keepends=True)
    first = next(number for number, line in enumerate(lines) if line.startswith("    source: "))
    last = first + 1
    while last < len(lines) and lines[last].startswith("      "):
        last += 1
    path.write_text("".join(lines[:first] + lines[last:]))
    with pytest.raises(InvalidInput, match=r"\.yml:\d+: \w+\[0\]\.source is missing"):
        load(tmp_path / "rows")


def test_every_mistake_has_its_line(tmp_path: Path) -> None:
    shutil.copytree(FOLDER, tmp_path / "rows")
    (tmp_path / "rows/branches.yml").write_text(
        "branches:\n  - branch: x\n    kind: LTS\n    max_cuda_major: 13\n    proprietary: maybe\n    source: me\n"
    )
    with pytest.raises(InvalidInput) as refusal:
        load(tmp_path / "rows")
    assert "branches.yml:2: branches[0].branch" in refusal.value.wrong
    assert "branches.yml:5: branches[0].proprietary" in refusal.value.wrong


def test_each_gpu_names_an_architecture_and_mig_row_that_exist() -> None:
    assert {row.architecture for row in KNOWN.gpus} <= {row.name for row in KNOWN.architectures}
    assert {row.mig for row in KNOWN.gpus} - {""} == {row.gpu for row in KNOWN.mig}


def test_no_id_has_two_plain_rows() -> None:
    plain = [device for row in KNOWN.gpus if not row.subdevices for device in row.ids]
    assert len(plain) == len(set(plain))


def test_every_distribution_has_one_set_of_a_branch_and_a_key() -> None:
    for distribution in DISTRIBUTIONS:
        for branch in (580, 595, 610):
            assert len([row for row in KNOWN.sets if row.fits(distribution, branch)]) == 1
        assert any(distribution in row.distributions and row.name.startswith("cuda-") for row in KNOWN.keys)


def test_each_package_of_a_set_is_part_of_the_one_version() -> None:
    for row in KNOWN.sets:
        for name in (*row.open, *row.proprietary, *row.libraries, *row.fabric_manager, *row.nvlsm, *row.imex):
            assert any(part.fits(name.replace("{branch}", "580")) for part in KNOWN.one_version), name
        assert not any(part.fits(name) for part in KNOWN.one_version for name in row.free)


def test_a_fraction_of_an_l4_is_known_by_its_subsystem() -> None:
    fraction, whole = PciGpu("a", "27b8", "10de", "1735"), PciGpu("a", "27b8", "10de", "16ee")
    assert [row.model if (row := KNOWN.model(gpu)) else "" for gpu in (fraction, whole)] == ["L4 fraction", "L4"]
    assert KNOWN.model(PciGpu("a", "27b8")) is None


@pytest.mark.parametrize(
    ("gpu", "profile", "count"), [("A100-40", "1g.5gb", 7), ("A30", "2g.12gb", 2), ("H200", "1g.35gb", 4)]
)
def test_mig_profiles_are_known_by_name(gpu: str, profile: str, count: int) -> None:
    assert next(row for row in KNOWN.mig if row.gpu == gpu).profiles[profile] == count
