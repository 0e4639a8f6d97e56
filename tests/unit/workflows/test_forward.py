"""Port arguments become requests to forward."""

from __future__ import annotations

import pytest

from gpuctl.cluster.clusterfile.model import Ports
from gpuctl.core.errors import InvalidInput
from gpuctl.kube.forward.model import Slot
from gpuctl.kube.forward.state_machine import Line
from gpuctl.workflows.forward import PortRequest, addresses, parse_ports

PORTS = Ports(tensorboard=6007)


def test_ports_are_named_as_in_the_file_or_by_number() -> None:
    assert parse_ports(["tensorboard", "9090:jupyter", "7000", "9091:7001"], PORTS) == [
        PortRequest(6007, 0, "tensorboard"),
        PortRequest(8888, 9090, "jupyter"),
        PortRequest(7000),
        PortRequest(7001, 9091),
    ]


def test_without_arguments_the_browser_ports_are_forwarded() -> None:
    assert [each.name for each in parse_ports([], PORTS)] == ["vscode", "jupyter", "tensorboard"]


def test_a_port_by_number_gets_its_name_so_that_a_debugger_is_never_probed() -> None:
    assert parse_ports(["15678:5678"], PORTS) == [PortRequest(5678, 15678, "debug")]


def test_all_mistakes_are_reported_at_once() -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_ports(["vscod", "0:8080", "x:debug", "99999", "9000:vscode", "9000:jupyter"], PORTS)
    told = caught.value.wrong
    for each in (
        "'vscod' is neither",
        "'0' is not a port",
        "'x' is not a port",
        "'99999' is neither",
        "9000 is given twice",
    ):
        assert each in told


def test_a_port_that_is_requested_twice_is_forwarded_once() -> None:
    assert parse_ports(["vscode", "8080"], PORTS) == [PortRequest(8080, 0, "vscode")]


def test_addresses_have_names_and_the_reason_for_another_local_port() -> None:
    asked = parse_ports(["vscode", "debug", "7000"], PORTS)
    ports = ((8081, 8080), (5678, 5678), (7000, 7000))
    lines = [Line(Slot((each,), "lab-0", "uid")) for each in ports]
    assert addresses(lines, asked) == [
        "vscode: http://127.0.0.1:8081 (the local port 8080 is taken)",
        "debug: 127.0.0.1:5678",
        "7000: 127.0.0.1:7000",
    ]
