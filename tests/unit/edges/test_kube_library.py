"""The client library without what gpuctl does not use."""

from __future__ import annotations

import subprocess
import sys

QUICK = """
import sys
import gpuctl.edges.kube.api
loaded = [name for name in sys.modules if name.startswith(("kubernetes.client.models.", "kubernetes.client.api."))]
assert not loaded, loaded
"""
WHOLE = """
from gpuctl.edges.kube import library
import kubernetes
from kubernetes import client, config, stream, watch
from kubernetes.client import CoreV1Api, V1Pod, rest
assert kubernetes.client is client and client.ApiClient is library.ApiClient
assert client.Configuration is library.Configuration and config.ConfigException is library.ConfigException
assert library.ApiClient()._ApiClient__deserialize({"kind": "Pod"}, "V1Pod").kind == "Pod"
assert kubernetes.__version__ and not hasattr(client, "no_such_name")
"""
ALREADY = """
import kubernetes
from gpuctl.edges.kube import library
assert kubernetes.client.ApiClient is library.ApiClient
"""


def passes(program: str) -> None:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_requests_to_a_cluster_import_no_model_and_no_api_of_the_library() -> None:
    passes(QUICK)


def test_whoever_asks_for_the_rest_of_the_library_gets_it() -> None:
    passes(WHOLE)


def test_a_library_that_somebody_has_imported_before_is_used_as_it_is() -> None:
    passes(ALREADY)
