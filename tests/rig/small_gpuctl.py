"""A package of the name gpuctl that does nothing but start: as wheels of a local index, and as a git checkout."""

from __future__ import annotations

import functools
import hashlib
import http.server
import json
import subprocess
import sys
import tempfile
import threading
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pip

from gpuctl.edges.installation import Environment
from tests.rig.small_wheel import write_wheel

STARTS = "def app(words, standalone_mode):\n    return 0\n"
BROKEN = "raise RuntimeError('it does not start')\n"
# Builds an editable install of the checkout it stands in, without anything from an index.
BACKEND = """
import pathlib, re, sys
sys.path.insert(0, {rig!r})
from small_wheel import write_wheel
def build_editable(folder, config_settings=None, metadata_directory=None):
    here = pathlib.Path.cwd()
    version = re.search(r"version: (.+)", (here / "galaxy.yml").read_text())[1]
    return write_wheel(pathlib.Path(folder), version, {{"small.pth": f"{{here}}\\n"}}).name
"""
PROJECT = """[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]
[project]
name = "gpuctl"
dynamic = ["version"]
"""


def package(code: str, changes: str) -> dict[str, str]:
    """Files of the package."""
    return {
        "gpuctl/__init__.py": "",
        "gpuctl/cli/__init__.py": "",
        "gpuctl/cli/app.py": code,
        "gpuctl/CHANGELOG.md": changes,
    }


def environment(folder: Path) -> Environment:
    """A fresh venv whose pip is the one of this Python."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    [site] = folder.glob("lib/python3*/site-packages")
    (folder / "pip").mkdir()
    (folder / "pip/pip").symlink_to(Path(pip.__file__).parent)
    (site / "pip.pth").write_text(f"{folder}/pip\n")
    return Environment(folder / "bin/python", site, folder)


def install(
    environment: Environment, files: dict[str, str], version: str = "1.0", editable: Path | None = None
) -> None:
    """What pip would have installed, without the time that it takes."""
    with tempfile.TemporaryDirectory() as folder, zipfile.ZipFile(write_wheel(Path(folder), version, files)) as wheel:
        wheel.extractall(environment.site)
    info = environment.site / f"gpuctl-{version}.dist-info"
    (info / "INSTALLER").write_text("pip\n")
    with (info / "RECORD").open("a") as record:
        record.write(f"{info.name}/INSTALLER,,\n{info.name}/direct_url.json,,\n")
    if editable:
        (info / "direct_url.json").write_text(json.dumps({"url": editable.as_uri(), "dir_info": {"editable": True}}))


class _Silent(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Nothing."""


@contextmanager
def index(folder: Path) -> Iterator[str]:
    """Serve the wheels of a folder as a package index on loopback; yields its URL."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(_Silent, directory=str(folder)))
    threading.Thread(target=server.serve_forever, args=(0.1,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/simple"
    finally:
        server.shutdown()
        server.server_close()


def publish(folder: Path, version: str, code: str, changes: str, *, damaged: bool = False) -> None:
    """Add a version to the index in a folder; `damaged`: the file has not the hash that the index states."""
    page = folder / "simple/gpuctl"
    page.mkdir(parents=True, exist_ok=True)
    wheel = write_wheel(page, version, package(code, changes))
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    if damaged:
        write_wheel(page, version, package(code + "# other\n", changes))
    with (page / "index.html").open("a") as listing:
        listing.write(f'<a href="{wheel.name}#sha256={digest}">{wheel.name}</a><br>\n')


def git(folder: Path, *argv: str) -> str:
    own = ["-c", "user.name=rig", "-c", "user.email=rig@example.org", "-c", "init.defaultBranch=main"]
    return subprocess.run(["git", "-C", str(folder), *own, *argv], check=True, capture_output=True, text=True).stdout


def commit(folder: Path, version: str, code: str, changes: str, subject: str) -> None:
    """Commit a version of the package."""
    for name, text in {
        **package(code, changes),
        "galaxy.yml": f"version: {version}\n",
        "CHANGELOG.md": changes,
    }.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    (folder / "backend.py").write_text(BACKEND.format(rig=str(Path(__file__).parent)))
    (folder / "pyproject.toml").write_text(PROJECT)
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", subject)


def report(environment: Environment) -> str:
    """Version that the environment has, and whether it starts."""
    code = (
        "import json; from importlib import metadata as m; from gpuctl.cli.app import app; print(m.version('gpuctl'))"
    )
    done = subprocess.run([str(environment.python), "-I", "-c", code], capture_output=True, text=True, check=False)
    return json.dumps(done.stdout.strip() or done.stderr.splitlines()[-1])
