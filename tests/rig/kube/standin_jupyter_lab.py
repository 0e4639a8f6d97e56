#!/usr/bin/python3
"""A stand-in for jupyter-lab in a pod: it reads the settings, listens, and demands the token as Jupyter does."""

import http.server
import json
import sys
from pathlib import Path

if __name__ == "__main__":
    settings = json.loads(Path(sys.argv[1].partition("=")[2]).read_text())
    token, server = settings["IdentityProvider"]["token"], settings["ServerApp"]

    class Answers(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            knows = self.headers.get("Authorization") == f"token {token}"
            self.send_response(200 if knows else 403)
            self.end_headers()
            self.wfile.write(b'{"type": "directory"}' if knows else b'{"message": "Forbidden", "reason": null}')

    http.server.ThreadingHTTPServer((server["ip"], server["port"]), Answers).serve_forever()
