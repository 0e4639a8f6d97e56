"""What the k9s pane brings: a key that selects a pod, beside the user's own plugins."""

from __future__ import annotations

import click
import yaml

from gpuctl.cli.kube.group import group
from gpuctl.tmux.build import SHARE, with_plugins

# The fields that k9s requires of a plugin (its plugins.json).
REQUIRED = {"shortCut", "description", "scopes", "command"}


def test_k9s_reads_the_plugin_and_its_command_exists() -> None:
    plugins = yaml.safe_load((SHARE / "k9s/plugins/gpuctl.yaml").read_text())
    assert set(plugins) == {"plugins"}
    plugin = plugins["plugins"]["gpuctl-select"]
    assert set(plugin) >= REQUIRED
    assert (plugin["command"], plugin["args"][:3]) == ("gpuctl", ["kube", "pod", "select"])
    pod = group.commands["pod"]
    assert isinstance(pod, click.Group)
    context = pod.commands["select"].make_context("select", plugin["args"][3:])
    assert {"$NAME", "$NAMESPACE", "$CONTEXT"} <= set(context.params.values())


def test_the_users_folders_come_first() -> None:
    assert with_plugins({}) == f"/usr/local/share:/usr/share:{SHARE}"
    assert with_plugins({"XDG_DATA_DIRS": "/mine"}) == f"/mine:{SHARE}"
    assert with_plugins({"XDG_DATA_DIRS": f"/mine:{SHARE}"}) == f"/mine:{SHARE}"
