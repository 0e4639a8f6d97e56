"""docs/gpu-node.md has every check of the plan, with a way out of what it refuses."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from gpuctl.gpu_node import dkms_modules, offers
from gpuctl.gpu_node.site import FIELDS

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/gpu-node.md").read_text()
VERIFY = [ROOT / f"gpuctl/gpu_node/{name}.py" for name in ("verify", "gds_check")]
FILES = [*sorted({*(ROOT / "gpuctl/gpu_node").glob("*.py")} - {*VERIFY}), ROOT / "gpuctl/cli/gpu_node/plan.py"]
# A component's name is the check of what is unknown about it.
COMPUTED = {
    "component.name": {"dcgm", "container toolkit", "gdrcopy", "gds"},
    "part.name": {"driver", "dcgm", "container toolkit", "efa", "gdrcopy", "gds", "peer memory", "nccl-tests"},
    "check": {"gdrcopy", "gds", "peer memory"},
    "name": {"gdrcopy", "gds"},
}

IMPORTED = {"GDS": dkms_modules.GDS, "ONE_VERSION": offers.ONE_VERSION, "REPOSITORY": offers.REPOSITORY}


def refusals(files: Sequence[Path]) -> Iterator[str]:
    """First argument of every fail, unknown and warn: a text, or a constant of the file or of offers.py."""
    for path in files:
        tree = ast.parse(path.read_text())
        constants = {
            "GDS": dkms_modules.GDS,
            **_constants(tree),
            "ONE_VERSION": offers.ONE_VERSION,
            "REPOSITORY": offers.REPOSITORY,
        }
        for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
            if isinstance(call.func, ast.Name) and call.func.id in {"fail", "unknown", "warn"}:
                name = ast.unparse(call.args[0])
                yield from COMPUTED[name] if name in COMPUTED else [constants.get(name) or ast.literal_eval(name)]


def _constants(tree: ast.Module) -> dict[str, str]:
    return {
        ast.unparse(node.targets[0]): str(node.value.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
    }


def rows(heading: str) -> list[list[str]]:
    section = PAGE.split(f"## {heading}\n")[1].split("\n## ")[0]
    lines = re.findall(r"^\| (.+) \|$", section, re.MULTILINE)[1:]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)] for line in lines]


def test_every_check_has_its_row_with_a_way_out() -> None:
    table = rows("What is refused, and the way out")
    assert {row[0].strip("`") for row in table} == set(refusals(FILES))
    assert all(row[1] and row[2] for row in table)


def test_every_check_of_verify_has_its_row_with_a_way_out() -> None:
    table = rows("Before a host takes jobs again")
    shared = {"interrupted"}  # with the plan
    assert {name for row in table for name in re.findall("`(.+?)`", row[0])} == {*refusals(VERIFY), *shared}
    assert all(row[1] and row[2] for row in table)


def test_every_field_of_gpu_stack_is_described() -> None:
    assert {row[0].strip("`") for row in rows("What a site sets")} == set(FIELDS.fields)
