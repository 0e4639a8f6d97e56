"""ansible-inventory with a bound on its memory, and Ansible's settings on the last line, in one start of Ansible.

Arguments: the memory in bytes, the names of the settings as JSON ([general ones, those of the ssh plugin]), and those
of `ansible`. A process of its own, as Ansible collects the output of an inventory script without a limit.
"""

from __future__ import annotations

import json
import runpy
import sys
from typing import Any

from gpuctl.engine import TooMuchMemoryError, bounded_memory

TOO_LARGE = "gpuctl-too-large"


def main() -> None:
    """Print the inventory, and then the settings that a file or the environment has."""
    most_memory, (general, of_ssh) = int(sys.argv.pop(1)), json.loads(sys.argv.pop(1))
    try:
        with bounded_memory(most_memory):
            runpy.run_module("ansible", run_name="__main__", alter_sys=True)
    except TooMuchMemoryError:
        sys.exit(TOO_LARGE)
    except SystemExit as end:
        if end.code:
            raise
    settings = {**_configured(general), **_configured(of_ssh, plugin="ssh")}
    sys.stdout.write("\n" + json.dumps(settings) + "\n")


def _configured(names: list[str], plugin: str = "") -> dict[str, Any]:
    from ansible import constants
    from ansible.plugins.loader import connection_loader

    source = {}
    if plugin:
        connection_loader.get(plugin, class_only=True)  # reads the definitions of its settings
        source = {"plugin_type": "connection", "plugin_name": plugin}
    found = {name: constants.config.get_config_value_and_origin(name, **source) for name in names}
    return {name: value for name, (value, origin) in found.items() if origin != "default"}


if __name__ == "__main__":
    main()
