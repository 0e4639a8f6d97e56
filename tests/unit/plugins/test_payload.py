"""The engine as one streamed program: it runs anywhere, and its answer is found in whatever surrounds it."""

from __future__ import annotations

import json
import subprocess
import sys

from ansible_collections.gpuctl.fleet.plugins.plugin_utils.payload import answer, script

TOKEN = "gpuctl-0123456789abcdef "  # noqa: S105


def test_the_program_runs_from_standard_input_in_an_empty_python() -> None:
    program = script(json.dumps({"action": "facts"}), TOKEN)
    done = subprocess.run([sys.executable, "-I", "-S", "-"], input=program, capture_output=True, check=True)
    told = answer(done.stdout, TOKEN)
    assert told is not None
    assert told["machine"]["machine"] in ("metal", "virtual", "container", "unknown")


def test_banners_before_and_noise_after_do_not_matter() -> None:
    output = b"Welcome!\r\nno newline at the end" + f'\n{TOKEN}{{"form": 1}}\n'.encode() + b"logout\n"
    assert answer(output, TOKEN) == {"form": 1}


def test_no_answer_is_none() -> None:
    assert answer(b"Welcome!\n", TOKEN) is None
