"""Stands in for the cluster's DNS: answers for pods' names in a file of lines "NAME ADDRESS", and knows nothing else.

Usage: standin_dns.py FILE ADDRESS
"""

from __future__ import annotations

import socket
import sys
from pathlib import Path

DOMAIN = ".cluster.local"


def question(packet: bytes) -> tuple[str, int, int]:
    """The name that is asked for, the type of the record, and where the question ends."""
    labels, at = [], 12
    while packet[at]:
        labels.append(packet[at + 1 : at + 1 + packet[at]].decode())
        at += packet[at] + 1
    return ".".join(labels).lower(), int.from_bytes(packet[at + 1 : at + 3], "big"), at + 5


def answer(packet: bytes, known: dict[str, str]) -> bytes:
    """An address for a name that is known; that there is no such name for the others."""
    name, kind, end = question(packet)
    address = known.get(name[: -len(DOMAIN)] if name.endswith(DOMAIN) else "")
    record = b""
    if address and kind == 1:
        record = b"\xc0\x0c\x00\x01\x00\x01\x00\x00\x00\x01\x00\x04" + socket.inet_aton(address)
    code = b"\x81\x80" if address else b"\x81\x83"
    return packet[:2] + code + b"\x00\x01" + len(record and [1]).to_bytes(2, "big") + bytes(4) + packet[12:end] + record


def main(file: Path, address: str) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind((address, 53))
        while True:
            packet, asker = server.recvfrom(512)
            known = dict(line.split() for line in file.read_text().splitlines())
            server.sendto(answer(packet, known), asker)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
