"""`gpuctl bootstrap laptop` in a home folder of its own, against a mirror that serves real archives."""

from __future__ import annotations

import os
import re
import resource
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpuctl.workstation.tools import rows
from tests.rig.command import GPUCTL, Gpuctl, Said
from tests.rig.mirror import Mirror, serving

NAMES = ("goodtool", "badtool", "lostool")


class Laptop:
    """A populated home folder, and the command in it; nothing outside of it is written."""

    def __init__(self, gpuctl: Gpuctl, mirror: Mirror, address: str) -> None:
        self.gpuctl, self.mirror, self.address = gpuctl, mirror, address
        self.home = gpuctl.home
        self.bin = self.home / ".local/bin"

    def rows(self, *rows: dict[str, Any]) -> None:
        path = self.home / ".config/gpuctl/tools.yml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(yaml.safe_dump(list(rows)))

    def __call__(self, *words: str, mirror: str = "") -> Said:
        named = () if "--undo" in words else (word for name in NAMES for word in ("--tool", name))
        return self.alone(*named, *words, mirror=mirror)

    def alone(self, *words: str, mirror: str = "") -> Said:
        """Without naming the tools."""
        places = {
            "GPUCTL_MIRROR": mirror or self.address,
            "GPUCTL_TOOLS_BIN": str(self.bin),
            "GPUCTL_TOOLS_FOLDER": str(self.home / ".local/share/gpuctl/tools"),
        }
        without = () if "--undo" in words else ("--no-packages",)
        return self.gpuctl("bootstrap", "laptop", *without, "--yes", "-o", "json", *words, **places)

    def seen(self) -> dict[str, object]:
        """Everything in the home but gpuctl's own: content or link, mode, owner."""
        found: dict[str, object] = {}
        for path in sorted(self.home.rglob("*")):
            name = str(path.relative_to(self.home))
            if name.startswith(("tmp", ".config/gpuctl", ".local/state")):
                continue
            stat = path.lstat()
            what = str(path.readlink()) if path.is_symlink() else path.read_bytes() if path.is_file() else ""
            found[name] = (what, stat.st_mode, stat.st_uid, stat.st_gid)
        return found


@pytest.fixture
def laptop(gpuctl: Gpuctl, tmp_path: Path) -> Iterator[Laptop]:
    with serving(tmp_path / "mirror") as (mirror, address):
        made = Laptop(gpuctl, mirror, address)
        populate(made.home)
        good = mirror.row("goodtool", "2.0.1")
        made.rows(good, mirror.row("badtool", "1.0", serve="corrupted"), mirror.row("lostool", "1.0", serve="no"))
        yield made


def populate(home: Path) -> None:
    """A home as people have it: shell files of their own, one of them a link into a repository, an older program."""
    (home / ".local/state").mkdir(parents=True)
    (home / ".local/bin").mkdir()
    (home / "dotfiles").mkdir()
    (home / "dotfiles/zshrc").write_text("# zsh, mine")
    (home / ".zshrc").symlink_to("dotfiles/zshrc")
    (home / ".bashrc").write_text("# bash, mine\n")
    (home / ".bashrc").chmod(0o600)
    os.chown(home / ".bashrc", 1234, 1234)
    (home / ".local/bin/goodtool").write_text("#!/bin/sh\necho goodtool 1.0\n")
    (home / ".local/bin/goodtool").chmod(0o751)


def states(said: Said) -> dict[str, str]:
    return {tool["tool"]: tool["state"] for tool in said.json["tools"]}


def test_good_archives_are_installed_and_the_corrupted_and_the_missing_say_why(laptop: Laptop) -> None:
    said = laptop()
    assert said.code == 1, said.err  # two that were asked for by name are missing
    assert states(said) == {"goodtool": "INSTALLED", "badtool": "MISSING", "lostool": "MISSING"}
    why = {tool["tool"]: tool["why"] for tool in said.json["tools"]}
    assert "is pinned: refused" in why["badtool"]
    assert "404" in why["lostool"]
    assert (
        subprocess.run([laptop.bin / "goodtool"], capture_output=True, text=True, check=True).stdout
        == "goodtool 2.0.1\n"
    )
    assert {path.name for path in laptop.bin.iterdir()} == {"goodtool"}
    assert {path.name for path in (laptop.home / ".local/share/gpuctl/tools").iterdir()} == {"goodtool"}


def test_check_changes_nothing_and_promises_what_is_then_done(laptop: Laptop) -> None:
    before = laptop.seen()
    promised = laptop("--check", "--diff")
    assert laptop.seen() == before
    done = laptop()
    assert changes(promised) == changes(done)
    assert (laptop.home / ".bashrc").read_text().startswith("# bash, mine\n# >>> gpuctl >>>")
    assert (laptop.home / ".zshrc").is_symlink()


def test_what_existed_is_told_with_its_version_and_kept(laptop: Laptop) -> None:
    told = [laptop("--check"), laptop()]
    whys = [next(tool["why"] for tool in said.json["tools"] if tool["tool"] == "goodtool") for said in told]
    place = "replaces 1.0, which is kept"
    assert whys == [f"would be installed, {place}", place]
    (row,) = (r for r in laptop("--undo").json["undone"] if r["path"].endswith("bin/goodtool"))
    assert row["why"] == "a file, version 1.0"


def changes(said: Said) -> set[str]:
    tools = {tool["tool"] for tool in said.json["tools"] if tool["changed"]}
    return tools | {file["path"] for file in said.json["files"] if file["changed"]}


def test_a_second_run_changes_nothing_and_is_quick(laptop: Laptop) -> None:
    laptop()
    before, began = laptop.seen(), busy_seconds()
    said = laptop()
    assert busy_seconds() - began < 10
    assert not said.json["changed"]
    assert states(said)["goodtool"] == "OK"
    assert laptop.seen() == before


def busy_seconds() -> float:
    """What our programs took of a processor so far: the time on the clock depends on who else is at work here."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def test_undo_leaves_a_populated_home_as_it_was(laptop: Laptop) -> None:
    before = laptop.seen()
    laptop()
    said = laptop("--undo")
    assert said.code == 0, said.err
    assert laptop.seen() == before


def test_a_check_of_an_undo_and_of_a_removal_says_what_would_be_done(laptop: Laptop) -> None:
    laptop()
    before = laptop.seen()
    for words, told in ((["--undo"], {"WOULD RESTORE", "WOULD REMOVE"}), (["--remove", "goodtool"], {"WOULD REMOVE"})):
        said = laptop.alone(*words, "--check", "-o", "table")
        assert told <= set(re.findall(r"WOULD \w+", said.out))
        assert not re.search(r"RESTORED|REMOVED", said.out)
    assert laptop.seen() == before


def test_a_record_that_cannot_be_read_is_told_with_its_place(laptop: Laptop) -> None:
    laptop()
    before = laptop.seen()
    record = laptop.home / ".local/state/gpuctl/workstation/record.json"
    record.write_text("{half")
    said = laptop("--undo")
    assert said.code == 3
    assert f"the record {record} cannot be read" in said.err
    assert laptop.seen() == before


def test_undo_takes_out_its_own_block_and_leaves_what_was_edited_since(laptop: Laptop) -> None:
    laptop()
    bashrc = laptop.home / ".bashrc"
    users = bashrc.read_text().partition("# >>> gpuctl >>>")[0]
    bashrc.write_text(bashrc.read_text() + "export EDITED=1\n")
    said = laptop("--undo")
    assert said.code == 0
    assert bashrc.read_text() == users + "export EDITED=1\n"


def test_undo_leaves_a_program_that_was_replaced_since_until_it_is_forced(laptop: Laptop) -> None:
    before = laptop.seen()
    laptop()
    link = laptop.bin / "goodtool"
    link.unlink()
    link.write_text("EDITED")
    said = laptop("--undo")
    assert said.code == 1
    assert said.json["conflicts"] == [str(link)]
    assert link.read_text() == "EDITED"
    assert laptop("--undo", "--force").code == 0
    assert laptop.seen() == before


def test_a_new_version_lies_beside_the_old_one_and_the_link_moves(laptop: Laptop) -> None:
    laptop()
    laptop.rows(*(laptop.mirror.row(name, "3.0") for name in NAMES))
    said = laptop()
    assert states(said)["goodtool"] == "INSTALLED"
    versions = laptop.home / ".local/share/gpuctl/tools/goodtool"
    assert sorted(path.name for path in versions.iterdir()) == ["2.0.1", "3.0"]
    assert laptop.bin.joinpath("goodtool").resolve() == versions / "3.0/goodtool"


def test_without_a_network_each_tool_is_missing_with_the_reason(laptop: Laptop) -> None:
    before = laptop.seen()
    said = laptop("--check", mirror="http://127.0.0.1:9")
    assert said.code == 1
    assert set(states(said).values()) == {"MISSING"}
    assert all("cannot be downloaded" in tool["why"] for tool in said.json["tools"])
    assert laptop("--strict", mirror="http://127.0.0.1:9").code == 1
    programs = {name: what for name, what in laptop.seen().items() if "bin/" in name}
    assert programs == {name: what for name, what in before.items() if "bin/" in name}


def test_a_tool_nobody_knows_is_refused_before_anything_is_touched(laptop: Laptop) -> None:
    before = laptop.seen()
    said = laptop("--tool", "nvtop")
    assert said.code == 2
    assert "there is no tool nvtop" in said.err
    assert "did you mean nvitop?" in said.err
    assert laptop.alone("--remove", "nvtop").code == 2
    assert laptop.seen() == before


def test_one_tool_is_taken_away_with_its_versions_and_the_next_run_brings_it_again(laptop: Laptop) -> None:
    before = laptop.seen()
    laptop()
    said = laptop.alone("--remove", "goodtool")
    assert said.code == 0, said.err
    assert said.json["changed"]
    assert laptop.bin.joinpath("goodtool").read_text() == "#!/bin/sh\necho goodtool 1.0\n"
    assert not (laptop.home / ".local/share/gpuctl/tools").exists()
    assert not laptop.alone("--remove", "goodtool").json["changed"]
    assert states(laptop())["goodtool"] == "INSTALLED"
    laptop("--undo")
    assert laptop.seen() == before


def test_a_package_of_pypi_or_npm_with_another_hash_is_refused(laptop: Laptop) -> None:
    """Against the real registries, where they can be reached: either way nothing unverified stays."""
    by_pip, by_npm = (next(row for row in rows() if row["name"] == name) for name in ("nvitop", "claude"))
    for name in by_pip["pip"]["hashes"]:
        by_pip["pip"]["hashes"][name] = ["0" * 64]
    by_npm["npm"]["integrity"] = "sha512-" + "A" * 86 + "=="
    laptop.rows({**by_pip, "name": "goodtool"}, {**by_npm, "name": "badtool"}, {**by_pip, "name": "lostool", "pip": {}})
    assert set(states(laptop("--check")).values()) == {"MISSING"}
    said = laptop()
    assert set(states(said).values()) == {"MISSING"}
    why = {tool["tool"]: tool["why"] for tool in said.json["tools"]}
    assert "pip cannot install nvitop" in why["goodtool"]
    assert "npm" in why["badtool"]
    assert "nothing is installed without verification" in why["lostool"]
    assert not (laptop.home / ".local/share/gpuctl/tools").is_dir() or not list(
        (laptop.home / ".local/share/gpuctl/tools").iterdir()
    )


def test_gpuctl_itself_is_linked_where_none_is_on_the_path(laptop: Laptop) -> None:
    said = laptop.alone("--tool", "gpuctl")
    (tool,) = said.json["tools"]
    if tool["state"] == "OK":  # this machine has one for everybody
        assert not laptop.bin.joinpath("gpuctl").exists()
    else:
        assert laptop.bin.joinpath("gpuctl").resolve() == GPUCTL
