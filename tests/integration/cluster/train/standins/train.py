"""A training without GPUs: the ranks meet on the master's port, add up their numbers, and do what they are told.

Arguments: none, or "RANK fails", "RANK waits", for the rank that is to do so; "all wait" for all.
"""

# ruff: noqa: T201
import os
import socket
import sys
import time

RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
AT = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))


def gathered() -> int:
    """The first rank takes a number from each other one, and gives the sum back to all."""
    server = socket.create_server(("", AT[1]))
    others = [server.accept()[0] for _ in range(WORLD - 1)]
    total = sum(int(each.recv(16)) for each in others)
    for each in others:
        each.sendall(str(total).encode())
    return total


def given() -> int:
    end = time.monotonic() + 60
    while True:
        try:
            with socket.create_connection(AT, timeout=60) as first:
                first.sendall(str(RANK).encode())
                return int(first.recv(16))
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.1)


print(f"rank {RANK} of {WORLD}: the sum is {gathered() if RANK == 0 else given()}, {os.environ.get('WORD', '-')}")
who, does = sys.argv[1:] or ("none", "")
if who == str(RANK) and does == "fails":
    print(f"rank {RANK} ran out of memory")
    sys.exit(7)
if does:
    print(f"rank {RANK} waits")
    time.sleep(600)
