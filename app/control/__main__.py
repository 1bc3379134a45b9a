"""A control worker without Celery, started by an API process when no other does control work: `python -m app.control`.

It looks for work by itself and ends with whoever holds the other end of its standard input.
"""

import sys

from app.control.opening import open_agent
from config.collector import spare_what_is_imported
from config.logging import configure
from config.settings import ServerSettings, load


def main() -> None:
    """Work until standard input ends."""
    settings = load(ServerSettings)
    configure("control", level=settings.log_level, as_json=settings.log_json)
    agent = open_agent()
    spare_what_is_imported()
    agent.start()
    sys.stdin.buffer.read()
    agent.stop()


if __name__ == "__main__":
    main()
