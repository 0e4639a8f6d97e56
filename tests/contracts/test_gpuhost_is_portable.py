"""The engine runs on a host with nothing but Python 3.9 (`make lint` checks the version, with vermin)."""

from __future__ import annotations

import sys

from tests.rig.source_files import PLUGINS, ROOT, imports, python_files


def test_the_engine_and_all_module_utils_need_only_the_standard_library() -> None:
    foreign = {
        f"{path.relative_to(ROOT)}: {name}"
        for path in python_files(PLUGINS / "module_utils")
        for name in imports(path)
        if name.partition(".")[0] not in sys.stdlib_module_names
    }
    assert foreign == set()


def test_a_module_needs_only_ansible_and_the_engine_besides() -> None:
    allowed = ("ansible.module_utils.", "ansible_collections.gpuctl.fleet.plugins.module_utils.")
    foreign = {
        f"{path.relative_to(ROOT)}: {name}"
        for path in python_files(ROOT / "plugins/modules")
        for name in imports(path)
        if name.partition(".")[0] not in sys.stdlib_module_names and not name.startswith(allowed)
    }
    assert foreign == set()
