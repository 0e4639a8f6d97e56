"""Whether VS Code of an environment runs, and whether what leads to it from outside does."""

from __future__ import annotations

from typing import Any

import pytest

from gpuctl.cluster.editors import ingress, judge, listens, route
from gpuctl.domain.findings import Verdict

# As /proc/net/tcp shows it (Linux 6.1): one that listens on 8080, and a connection to 8888.
SOCKETS = """  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 29341 1 0000000000000000
   1: 0100007F:C350 0100007F:22B8 01 00000000:00000000 00:00000000 00000000  1000        0 29350 1 0000000000000000
"""


def test_a_port_that_somebody_listens_on_is_found_and_a_connection_is_no_listener() -> None:
    assert listens(f"there\n{SOCKETS}", 8080)
    assert not listens(SOCKETS, 0xC350)
    assert not listens("", 8080)


@pytest.mark.parametrize(
    ("told", "port", "verdict"),
    [
        (f"there\n{SOCKETS}", 8080, Verdict.OK),
        (f"there\n{SOCKETS}", 8081, Verdict.FAIL),
        (f"none\n{SOCKETS}", 8080, Verdict.FAIL),
        ("there\n", 8080, Verdict.UNKNOWN),  # no cat, or no /proc
        ("", 8080, Verdict.UNKNOWN),
    ],
)
def test_a_pod_that_does_not_tell_who_listens_is_no_pod_where_nobody_does(
    told: str, port: int, verdict: Verdict
) -> None:
    assert judge(told, port) is verdict


def route_with(*conditions: dict[str, str]) -> dict[str, Any]:
    return {"spec": {"host": "lab-vscode-team.apps"}, "status": {"ingress": [{"conditions": list(conditions)}]}}


def test_a_route_counts_once_a_router_has_admitted_it() -> None:
    assert route(route_with({"type": "Admitted", "status": "True"})) == ("lab-vscode-team.apps", "")
    refused = {"type": "Admitted", "status": "False", "reason": "HostAlreadyClaimed", "message": "route x has it"}
    assert route(route_with(refused))[1] == "no router has admitted its Route: route x has it"
    assert route(route_with())[1] == "no router has admitted its Route"
    assert route(None) == ("", "its Route does not exist")


def ingress_with(status: dict[str, Any]) -> dict[str, Any]:
    def rule(word: str) -> dict[str, Any]:
        backend = {"service": {"name": f"lab-{word}", "port": {"name": word}}}
        return {"host": f"{word}-lab.example.org", "http": {"paths": [{"path": "/", "backend": backend}]}}

    return {"spec": {"rules": [rule("jupyter"), rule("vscode")]}, "status": status}


def test_an_ingress_counts_once_a_controller_has_given_it_an_address() -> None:
    taken = {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}}
    assert ingress(ingress_with(taken), "lab-vscode") == ("vscode-lab.example.org", "")
    assert ingress(ingress_with({}), "lab-vscode")[1] == "no controller has taken its Ingress"
    assert ingress(ingress_with(taken), "other-vscode")[1] == "its Ingress has no rule for it"
    assert ingress(None, "lab-vscode")[1] == "its Ingress does not exist"
