"""Tests of this room talk to the API over a socket."""

from tests.api_target import target
from tests.served import served, served_on_sqlite

__all__ = ["served", "served_on_sqlite", "target"]
