"""Which sockets a test may open: said by the room it lies in."""

from pathlib import Path

import pytest
import pytest_socket

HERE = Path(__file__).parent
CLOSED_ROOMS = frozenset({"architecture", "config", "docs", "domain", "schemas"})
"""Rooms whose tests open no socket at all. All others reach this machine (loopback, unix sockets) and no further."""
LOOPBACK = ["127.0.0.1", "::1", "localhost"]
OWN_NETWORKS = {"hosts": ["10.99.0.0/24"]}
"""Networks that exist in a room's own namespaces and nowhere else."""


def close_by_room(item: pytest.Item) -> None:
    """Close what the test `item` has no business with; pytest-socket opens it again after the test."""
    room = item.path.relative_to(HERE).parts[0] if HERE in item.path.parents else ""
    if room in CLOSED_ROOMS:
        pytest_socket.disable_socket(allow_unix_socket=False)
    else:
        pytest_socket.socket_allow_hosts([*LOOPBACK, *OWN_NETWORKS.get(room, [])], allow_unix_socket=True)
