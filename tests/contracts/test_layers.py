"""The layers that import-linter cannot see: plugins that Ansible loads as single files, and packages to come."""

from __future__ import annotations

import re
import tomllib

from tests.rig.source_files import PLUGINS, ROOT, importers, imports, python_files


def test_the_collection_works_without_the_python_package() -> None:
    assert importers(PLUGINS, "gpuctl") == []


def test_only_the_door_to_a_machine_starts_programs_there() -> None:
    # The first reads what programs print that the second starts.
    door = [f"plugins/module_utils/gpuhost/{name}.py" for name in ("bounded_output", "host")]
    assert importers(PLUGINS, "subprocess") == door


def test_every_package_has_its_place_in_the_layers() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    placed = {name for layer in contracts[0]["layers"] for name in re.findall(r"\bgpuctl\.(\w+)", layer)}
    packages = {path.parent.name for path in (ROOT / "gpuctl").glob("*/__init__.py")}
    assert packages
    assert packages <= placed


def test_the_door_to_the_engine_opens_on_every_name_it_lists() -> None:
    from gpuctl import engine

    assert set(engine.__all__) == engine.MODULES.keys() | engine.HOMES.keys()
    assert all(getattr(engine, name) is not None for name in engine.__all__)


def test_no_helper_of_tests_is_a_test_or_stands_among_them() -> None:
    """Whoever looks for a helper looks in tests/rig, and tests of one kind do not depend on tests of another."""
    folders = [ROOT / "tests" / name for name in ("integration", "rig", "contracts", "docs")]
    others = [path for folder in folders for path in python_files(folder)]
    tests = ("tests.unit", "tests.component")
    assert [str(path) for path in others if any(name.startswith(tests) for name in imports(path))] == []
    files = [path for kind in ("unit", "component") for path in python_files(ROOT / "tests" / kind)]
    assert [
        path
        for path in (str(file.relative_to(ROOT)) for file in files)
        if not re.search(r"/(test_\w+|conftest|__init__)\.py$", path)
    ] == []
