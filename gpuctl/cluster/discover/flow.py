"""Maybe a cluster, draft its file, and put it in its place."""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
from dataclasses import replace
from pathlib import Path

from gpuctl.cluster.clusterfile.patterns import IMAGE, LABEL
from gpuctl.cluster.clusterfile.read import parse
from gpuctl.cluster.discover import read
from gpuctl.cluster.discover.draft import Draft, draft
from gpuctl.core.errors import GpuctlError, InvalidInput
from gpuctl.core.paths import write_atomically
from gpuctl.core.strict_yaml import Mistake


def discover(context: str = "", namespace: str = "", image: str = "", file: str = "") -> Draft:
    """Draft a file for the cluster of a context, read-only; raises `InvalidInput` for unusable options.

    `file`: the draft's file name without its ending, by which commands find it.
    """
    for option, kind, value in (("--namespace", LABEL, namespace), ("--image", IMAGE, image)):
        if value and not re.fullmatch(kind.pattern, value):
            raise InvalidInput(f"use {option}", f"{value!r} is not {kind.shape}")
    cluster, named = read.connect(context, namespace)
    return draft(replace(read.read_facts(cluster, named), file=file), image)


def mistakes(drafted: Draft) -> tuple[Mistake, ...]:
    """Validate the draft as `gpuctl cluster validate` does; mistakes refer to the draft's lines."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "draft.yaml"
        path.write_text(drafted.text, encoding="utf-8")
        mistakes = parse(path).mistakes
    return tuple(mistake._replace(where=mistake.where.replace(f"{path}:", "line ")) for mistake in mistakes)


def check_free(path: Path, force: bool) -> None:
    """Raise `InvalidInput` if the file already exists, or cannot be written there."""
    doing = f"write {path}"
    existing = next(folder for folder in path.absolute().parents if os.path.lexists(folder))
    if not existing.is_dir():
        raise InvalidInput(doing, f"{existing} is not a folder", "choose another name")
    if path.is_dir():
        raise InvalidInput(doing, "it is a folder", "pass the name of a file")
    if os.path.lexists(path) and not force:
        raise InvalidInput(doing, "it exists already and was left alone", "choose another name, or pass --force")


def write(path: Path, text: str, force: bool) -> None:
    """Write the file atomically, in a new folder if there is none; without `force` never over an existing file."""
    doing = f"write {path}"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise GpuctlError(doing, error.strerror or str(error), "without --output-file it is printed") from error
    if force:
        _writing(doing, path, text)
        return
    beside = path.with_name(f".{path.name}.draft.{os.getpid()}")
    _writing(doing, beside, text)
    try:
        path.hardlink_to(beside)
    except FileExistsError as error:
        raise InvalidInput(
            doing, "it was created meanwhile and was left alone", "choose another name, or pass --force"
        ) from error
    except OSError as error:
        raise GpuctlError(doing, error.strerror or str(error), "without --output-file it is printed") from error
    finally:
        with contextlib.suppress(OSError):
            beside.unlink()


def _writing(doing: str, path: Path, text: str) -> None:
    try:
        write_atomically(path, text)
    except OSError as error:
        raise GpuctlError(doing, error.strerror or str(error), "without --output-file it is printed") from error
