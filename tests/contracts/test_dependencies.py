"""What the package imports is what pip is told to install with it."""

from __future__ import annotations

import re
import sys
import tomllib
from importlib.metadata import files

from tests.rig.source_files import ROOT, imports, python_files

OURS = {"gpuctl", "ansible_collections"}


def test_every_import_is_a_declared_dependency_and_the_other_way_round() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    listed = [*project["dependencies"], *(one for extra in project["optional-dependencies"].values() for one in extra)]
    declared = {re.split(r"[^\w-]", dependency)[0] for dependency in listed}
    imported = {
        name.partition(".")[0]
        for folder in (ROOT / "gpuctl", ROOT / "plugins")
        for path in python_files(folder)
        for name in imports(path)
    }
    needed = imported - OURS - set(sys.stdlib_module_names)
    provided = {
        dependency: {path.parts[0].removesuffix(".py") for path in files(dependency) or ()} for dependency in declared
    }
    assert needed - set().union(*provided.values()) == set()
    assert [dependency for dependency, names in provided.items() if not names & needed] == []
