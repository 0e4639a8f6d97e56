"""ask_vllm.py against a stand-in for vLLM's server, with the chunks of its streaming API."""

from __future__ import annotations

import http.server
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

POD = Path(__file__).parents[3] / "examples/eks/pod"
CHUNKS: list[dict[str, Any]] = [
    {"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]},
    {"choices": [{"index": 0, "delta": {"content": "Rayleigh"}}]},
    {"choices": [{"index": 0, "delta": {"content": " scattering."}, "finish_reason": "stop"}]},
    {"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 4, "total_tokens": 13}},
]


@contextmanager
def standin_vllm(status: int = 200) -> Iterator[str]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.answer(json.dumps({"object": "list", "data": [{"id": "Qwen/Qwen2.5-0.5B-Instruct"}]}))

        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            assert request["stream"]
            lines = [f"data: {json.dumps(chunk)}\n\n" for chunk in CHUNKS]
            self.answer("".join([*lines, "data: [DONE]\n\n"]))

        def answer(self, text: str) -> None:
            self.send_response(status)
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_: object) -> None:
            """Tests print nothing."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def ask(server: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, str(POD / "ask_vllm.py"), "Why is the sky blue?", "--server", server]
    return subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60)


def test_the_answer_is_printed_and_measured() -> None:
    with standin_vllm() as server:
        done = ask(server)
    assert (done.returncode, done.stdout) == (0, "Rayleigh scattering.\n"), done.stderr
    assert done.stderr.startswith("Qwen/Qwen2.5-0.5B-Instruct: first token after ")


def test_another_server_is_named() -> None:
    with standin_vllm(404) as server:
        done = ask(server)
    assert (done.returncode, f"{server} answers 404" in done.stderr) == (1, True)
