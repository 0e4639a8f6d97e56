"""cluster list, show, validate, schema, migrate: what is in the cluster files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpuctl.cli.cluster.environment_options import name
from gpuctl.cli.shared import options, output
from gpuctl.cli.shared.output import Output
from gpuctl.core.errors import InvalidInput

if TYPE_CHECKING:
    from gpuctl.cluster.clusterfile.locate import Listed


@click.command("list")
@options.output
def listing(form: Output) -> None:
    """List the clusters that go by a name: in clusters/, in your own settings, and the examples of gpuctl."""
    from gpuctl.cluster.clusterfile import locate as found

    listed = found.all_of_them()
    if form != "table":
        output.data([_told(each) for each in listed], form)
        return
    rows = [_row(each) for each in listed]
    output.table(("NAME", "FLAVOUR", "NAMESPACE", "RDMA", "GPUS", "STORAGE", "FILE"), rows)


def _row(listed: Listed) -> tuple[str, ...]:
    cluster, path = listed.read.cluster, str(listed.path) + (" (example)" if listed.ours else "")
    if cluster is None:
        wrong = output.plural(len(listed.read.mistakes), "mistake")
        return listed.name, "?", "?", "?", "?", "?", f"{path}: {wrong}"
    about, rdma = cluster.cluster, cluster.network.rdma
    gpus = f"{cluster.gpus.default_nodes} x {cluster.gpus.per_node}"
    way = rdma.fabric if rdma.enabled else "-"
    return listed.name, about.flavour, about.namespace, way, gpus, cluster.storage.mode, path


def _told(listed: Listed) -> dict[str, Any]:
    cluster = listed.read.cluster
    return {
        "name": listed.name,
        "file": str(listed.path),
        "example": listed.ours,
        "mistakes": [mistake._asdict() for mistake in listed.read.mistakes],
        "cluster": asdict(cluster.cluster) if cluster else None,
    }


@click.command()
@name
@options.output
def show(name: str, form: Output) -> None:
    """Show a cluster with every value that holds for it, the defaults among them."""
    from gpuctl.cluster.clusterfile import fields, read
    from gpuctl.cluster.clusterfile import locate as found
    from gpuctl.cluster.clusterfile.model import Cluster

    path = found.find(name)
    cluster = asdict(read.load(path))
    if form != "table":
        output.data(cluster, form)
        return
    click.echo(f"{path}\n")
    rows = [(way, *_value(cluster, way, fields.default(each)), spec.about) for way, each, spec in fields.walk(Cluster)]
    output.table(("FIELD", "VALUE", "FROM", "WHAT IT IS"), [row for row in rows if row[1]])
    if cluster["notes"]:
        click.echo(f"\n{cluster['notes'].strip()}")


def _value(cluster: Mapping[str, Any], way: str, default: object) -> tuple[str, str]:
    found: Any = cluster
    for part in way.split("."):
        found = (found or {}).get(part)
    if isinstance(found, Mapping):
        text = ", ".join(f"{key}={value}" for key, value in found.items())
    elif isinstance(found, (list, tuple)):
        text = ", ".join(map(str, found))
    else:
        text = "" if found is None else str(found).lower() if isinstance(found, bool) else str(found)
    return next(iter(text.splitlines()), ""), "default" if found == default else "file"


@click.command()
@name
@options.output
def validate(name: str, form: Output) -> None:
    """Check a cluster file without a cluster: every mistake at once, with its line."""
    from gpuctl.cluster.clusterfile import locate as found
    from gpuctl.cluster.clusterfile import read

    path = found.find(name)
    mistakes = read.look(path).mistakes
    if form != "table":
        told = {"file": str(path), "ok": not mistakes, "mistakes": [mistake._asdict() for mistake in mistakes]}
        output.data(told, form)
        raise click.exceptions.Exit(InvalidInput.exit_code if mistakes else 0)
    if mistakes:
        read.load(path)  # tells them as an error, with what to try
    click.echo(f"{path}: OK")


@click.command()
@click.option(
    "--output",
    "-o",
    "form",
    type=click.Choice(["json", "yaml", "table"]),
    default="json",
    show_default=True,
    help="JSON Schema as JSON or YAML, or a table of the fields.",
)
def schema(form: Output) -> None:
    """Print the JSON Schema of a cluster file, which editors check it with, or a table of its fields.

    \b
    In an editor: gpuctl cluster schema > cluster.schema.json, and as the file's first line
      # yaml-language-server: $schema=cluster.schema.json
    """
    from gpuctl.cluster.clusterfile import schema as made

    if form != "table":
        output.data(made.document(), form)
        return
    rows = [(row["field"], row["takes"], row["unit"], row["default"], row["about"]) for row in made.rows()]
    output.table(("FIELD", "TAKES", "UNIT", "DEFAULT", "WHAT IT IS"), rows)


@click.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--image", metavar="IMAGE", default="", help="What the pods run: the older layout did not say it.")
@click.option("--resource", "resources", metavar="NAME=N", multiple=True, help="A resource that brings adapters in.")
@click.option(
    "--flavour", type=click.Choice(["openshift", "kubernetes", "eks"]), default="openshift", show_default=True
)
@click.option("--write", is_flag=True, help="Put it in the file's place; the old one is kept beside it.")
def migrate(file: Path, image: str, resources: Sequence[str], flavour: str, write: bool) -> None:
    """Turn a cluster file of the older layout into today's, with its comments; print it, or write it.

    What was changed, and what still has to be mended, is told on standard error; in the latter case the exit code is 1.
    """
    from gpuctl.cluster.clusterfile import migrate as moving

    added = moving.Added(flavour, image, dict(_counted(word) for word in resources))
    moved = moving.migrate(file, added)
    for text in moved.said:
        click.echo(text, err=True)
    if write:
        click.echo(f"the old file is kept as {moving.replace(file, moved.text)}", err=True)
    else:
        click.echo(moved.text, nl=False)
    for mistake in moved.left:
        click.echo(f"to be mended: {mistake}", err=True)
    raise click.exceptions.Exit(1 if moved.left else 0)


def _counted(word: str) -> tuple[str, int]:
    name, _, count = word.partition("=")
    if not name or not count.isdecimal() or int(count) < 1:
        raise InvalidInput(
            "read --resource", f"{word!r} is not of the form NAME=N", "such as openshift.io/eno5np0rdma=1"
        )
    return name, int(count)
