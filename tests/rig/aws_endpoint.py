"""An AWS endpoint over HTTP on loopback (moto), and a proxy in front of it that injects errors.

moto keeps subnets, interfaces and CIDR reservations. It drops prefixes, interface types and attachments of interfaces.
"""

from __future__ import annotations

import http.client
import http.server
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

LOGIN = {
    "AWS_ACCESS_KEY_ID": "testing",
    "AWS_SECRET_ACCESS_KEY": "testing",
    "AWS_REGION": "us-east-1",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
    "AWS_CONFIG_FILE": "/nonexistent",
    "AWS_SHARED_CREDENTIALS_FILE": "/nonexistent",
}
ERROR = """<?xml version="1.0"?>
<Response><Errors><Error><Code>{code}</Code><Message>{message}</Message></Error></Errors></Response>"""


@contextmanager
def moto_endpoint() -> Iterator[str]:
    """URL of moto."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        url = f"http://{host}:{port}"
        # moto loads a service at its first request; two at the same time can both fail with 500.
        client(url, "eks").list_clusters()
        client(url, "iam").list_roles()
        client(url, "sts").get_caller_identity()
        yield url
    finally:
        server.stop()


def client(url: str, service: str = "ec2", login: str = "testing") -> Any:
    """A client of a service, by default EC2, for this endpoint. `login`: id of its access key."""
    import botocore.session

    session = botocore.session.Session()
    session.set_credentials(login, "testing")
    return session.create_client(service, endpoint_url=url, region_name="us-east-1")


def vpc_with_subnets(ec2: Any, *blocks: str) -> tuple[str, list[str]]:
    """Ids of a new VPC 10.0.0.0/16 and of its subnets, in the zones us-east-1a, b …"""
    vpc = ec2.create_vpc(CidrBlock="10.0.0.0/16")["Vpc"]["VpcId"]
    return vpc, [
        ec2.create_subnet(VpcId=vpc, CidrBlock=block, AvailabilityZone=f"us-east-1{zone}")["Subnet"]["SubnetId"]
        for block, zone in zip(blocks, "abcdef", strict=False)
    ]


def make_public(ec2: Any, vpc: str, subnets: Sequence[str]) -> None:
    """Give a VPC a way out by an internet gateway, and its instances the addresses and the DNS that they need."""
    gateway = ec2.create_internet_gateway()["InternetGateway"]["InternetGatewayId"]
    ec2.attach_internet_gateway(InternetGatewayId=gateway, VpcId=vpc)
    (table,) = ec2.describe_route_tables(Filters=[{"Name": "vpc-id", "Values": [vpc]}])["RouteTables"]
    ec2.create_route(RouteTableId=table["RouteTableId"], DestinationCidrBlock="0.0.0.0/0", GatewayId=gateway)
    ec2.modify_vpc_attribute(VpcId=vpc, EnableDnsHostnames={"Value": True})
    dns = [{"Key": "domain-name-servers", "Values": ["AmazonProvidedDNS"]}]  # AWS's default, which moto lacks
    options = ec2.create_dhcp_options(DhcpConfigurations=dns)["DhcpOptions"]["DhcpOptionsId"]
    ec2.associate_dhcp_options(DhcpOptionsId=options, VpcId=vpc)
    for subnet in subnets:
        ec2.modify_subnet_attribute(SubnetId=subnet, MapPublicIpOnLaunch={"Value": True})


Answer = tuple[int, str]  # HTTP status and body
Inject = Callable[[str], Answer | None]  # operation -> an answer in place of the endpoint's


def error_for(operation: str, code: str, message: str = "injected", status: int = 400) -> Inject:
    """Every request of this operation gets this error."""
    return lambda name: (status, ERROR.format(code=code, message=message)) if name == operation else None


@contextmanager
def added_answers_proxy(endpoint: str, answers: Mapping[str, Answer]) -> Iterator[str]:
    """URL of a proxy that answers these operations (or paths), which the endpoint lacks."""
    with error_injecting_proxy(endpoint, answers.get) as (url, _):
        yield url


@contextmanager
def error_injecting_proxy(endpoint: str, inject: Inject) -> Iterator[tuple[str, list[str]]]:
    """URL of a proxy that answers some operations itself, and the list of the operations that it received."""
    received: list[str] = []
    behind = urlsplit(endpoint).netloc

    class Handler(http.server.BaseHTTPRequestHandler):
        def _answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            found = re.search(rb"Action=(\w+)", body)
            target = self.headers.get("X-Amz-Target", "").rpartition(".")[2]
            operation = found[1].decode() if found else target or self.path.partition("?")[0]
            received.append(operation)
            injected = inject(operation)
            status, text, headers = (injected[0], injected[1].encode(), {}) if injected else self._forwarded(body)
            self.send_response(status)
            for name, value in {**headers, "Content-Type": "text/xml"}.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        do_POST = do_GET = _answer  # noqa: N815 - names of the standard library

        def _forwarded(self, body: bytes) -> tuple[int, bytes, dict[str, str]]:
            """Status and body, and the headers that name an error."""
            connection = http.client.HTTPConnection(behind, timeout=30)
            try:
                connection.request(self.command, self.path, body, dict(self.headers))
                answer = connection.getresponse()
                kept = {name: value for name, value in answer.getheaders() if name.lower().startswith("x-amzn")}
                return answer.status, answer.read(), kept
            finally:
                connection.close()

        def log_message(self, *_: Any) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", received
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
