"""cluster list, show, validate, schema, migrate: commands for cluster files."""

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
    """List the cluster files that can be used by name: in clusters/, your settings folder, and gpuctl's examples."""
    from gpuctl.cluster.clusterfile import locate

    listed = locate.all_of_them()
    if form != "table":
        output.data([_as_dict(entry) for entry in listed], form)
        return
    rows = [_row(entry) for entry in listed]
    output.table(("NAME", "FLAVOUR", "NAMESPACE", "RDMA", "GPUS", "STORAGE", "FILE"), rows)


def _row(listed: Listed) -> tuple[str, ...]:
    cluster, path = listed.read.cluster, str(listed.path) + (" (example)" if listed.ours else "")
    if cluster is None:
        wrong = output.plural(len(listed.read.mistakes), "mistake")
        return listed.name, "?", "?", "?", "?", "?", f"{path}: {wrong}"
    about, rdma = cluster.cluster, cluster.network.rdma
    gpus = f"{cluster.gpus.default_nodes} x {cluster.gpus.per_node}"
    fabric = rdma.fabric if rdma.enabled else "-"
    return listed.name, about.flavour, about.namespace, fabric, gpus, cluster.storage.mode, path


def _as_dict(listed: Listed) -> dict[str, Any]:
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
    """Show a cluster file with all effective values, including defaults."""
    from gpuctl.cluster.clusterfile import fields, locate, read
    from gpuctl.cluster.clusterfile.model import Cluster

    path = locate.find(name)
    cluster = asdict(read.load(path))
    if form != "table":
        output.data(cluster, form)
        return
    click.echo(f"{path}\n")
    rows = [
        (path, *_value(cluster, path, fields.default(field)), spec.about) for path, field, spec in fields.walk(Cluster)
    ]
    output.table(("FIELD", "VALUE", "FROM", "DESCRIPTION"), [row for row in rows if row[1]])
    if cluster["notes"]:
        click.echo(f"\n{cluster['notes'].strip()}")


def _value(cluster: Mapping[str, Any], path: str, default: object) -> tuple[str, str]:
    value: Any = cluster
    for part in path.split("."):
        value = (value or {}).get(part)
    if isinstance(value, Mapping):
        text = ", ".join(f"{key}={entry}" for key, entry in value.items())
    elif isinstance(value, (list, tuple)):
        text = ", ".join(map(str, value))
    else:
        text = "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
    return next(iter(text.splitlines()), ""), "default" if value == default else "file"


@click.command()
@name
@options.output
def validate(name: str, form: Output) -> None:
    """Validate a cluster file, without contacting a cluster; all mistakes are reported at once, with their lines."""
    from gpuctl.cluster.clusterfile import locate, read

    path = locate.find(name)
    mistakes = read.parse(path).mistakes
    if form != "table":
        listed = [mistake._asdict() for mistake in mistakes]
        hint = read.hint(path, mistakes)
        output.data({"file": str(path), "ok": not mistakes, "mistakes": listed, "hint": hint}, form)
        raise click.exceptions.Exit(InvalidInput.exit_code if mistakes else 0)
    if mistakes:
        read.load(path)  # raises them as an error, with a hint
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
    """Print the JSON Schema of a cluster file, for validation in editors, or a table of its fields.

    \b
    In an editor: gpuctl cluster schema > cluster.schema.json, and as the file's first line
      # yaml-language-server: $schema=cluster.schema.json
    """
    from gpuctl.cluster.clusterfile import schema as file_schema

    if form != "table":
        output.data(file_schema.document(), form)
        return
    rows = [(row["field"], row["takes"], row["unit"], row["default"], row["about"]) for row in file_schema.rows()]
    output.table(("FIELD", "TAKES", "UNIT", "DEFAULT", "DESCRIPTION"), rows)


@click.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--image", metavar="IMAGE", default="", help="The pods' image: the older layout did not have it.")
@click.option(
    "--resource",
    "resources",
    metavar="NAME=N",
    multiple=True,
    help="A resource of RDMA adapters, with the number per pod.",
)
@click.option(
    "--flavour",
    type=click.Choice(["openshift", "kubernetes", "eks"]),
    default="openshift",
    show_default=True,
    help="Platform of the cluster.",
)
@click.option("--write", is_flag=True, help="Replace the file; the old one is kept beside it.")
def migrate(file: Path, image: str, resources: Sequence[str], flavour: str, write: bool) -> None:
    """Migrate a cluster file of the older layout, with its comments; print the result, or write it.

    Changes and remaining mistakes are listed on standard error; with mistakes the exit code is 1.
    """
    from gpuctl.cluster.clusterfile import migrate as moving

    added = moving.Added(flavour, image, dict(_counted(word) for word in resources))
    moved = moving.migrate(file, added)
    for text in moved.notes:
        click.echo(text, err=True)
    if write:
        click.echo(f"the old file is kept as {moving.replace(file, moved.text)}", err=True)
    else:
        click.echo(moved.text, nl=False)
    for mistake in moved.left:
        click.echo(f"correct: {mistake}", err=True)
    raise click.exceptions.Exit(1 if moved.left else 0)


def _counted(word: str) -> tuple[str, int]:
    name, _, count = word.partition("=")
    if not name or not count.isdecimal() or int(count) < 1:
        raise InvalidInput(
            "read --resource", f"{word!r} is not of the form NAME=N", "such as openshift.io/eno5np0rdma=1"
        )
    return name, int(count)
