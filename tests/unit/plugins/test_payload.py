"""The engine as one streamed program: it runs in any Python, and its answer is found in other output."""

from __future__ import annotations

import json
import subprocess
import sys

from ansible_collections.gpuctl.fleet.plugins.plugin_utils.answers import find
from ansible_collections.gpuctl.fleet.plugins.plugin_utils.payload import script

TOKEN = "gpuctl-0123456789abcdef "  # noqa: S105


def test_the_program_runs_from_standard_input_in_an_empty_python() -> None:
    program = script(json.dumps({"action": "facts"}), TOKEN)
    done = subprocess.run([sys.executable, "-I", "-S", "-"], input=program, capture_output=True, check=True)
    answer = find(done.stdout, TOKEN, "facts")
    assert answer["machine"]["machine"] in ("metal", "virtual", "container", "unknown")
