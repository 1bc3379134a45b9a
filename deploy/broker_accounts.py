"""Write the broker's ACL file out of passwords in the environment: one account for each REDIS_<POOL>_PASSWORD.

REDIS_PASSWORD is the administrator's (Redis' own account `default`), REDIS_CONTROL_PASSWORD the control plane's, and
REDIS_NIGHT_PASSWORD that of the workers of a pool `night` (`_` in between stands for `-`). The file holds hashes of
random passwords, so it may be read by the broker's own user.

Usage: python broker_accounts.py FILE
"""

import hashlib
import os
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from config.broker_acl import line_of

ADMIN = "REDIS_PASSWORD"
ACCOUNT = re.compile(r"REDIS_([A-Z0-9_]+)_PASSWORD")


def lines(environment: Mapping[str, str]) -> Iterator[str]:
    """Yield the file's lines. Raises KeyError without an administrator, ValueError for a name of no pool."""
    yield f"user default reset on #{_digest(environment[ADMIN])} allkeys allchannels allcommands"
    for name, password in sorted(environment.items()):
        if found := ACCOUNT.fullmatch(name):
            yield line_of(found[1].lower().replace("_", "-"), (_digest(password),))


def write(file: Path, text: str) -> None:
    """Replace the file at one moment. Its folder is the volume, and the broker is another user."""
    file.parent.chmod(0o755)
    fresh = file.with_suffix(".new")
    fresh.write_text(text)
    fresh.chmod(0o644)
    fresh.replace(file)


def _digest(password: str) -> str:
    if not password:
        raise ValueError("a password is empty")
    return hashlib.sha256(password.encode()).hexdigest()


def main() -> int:
    """Write it."""
    try:
        found = list(lines(os.environ))
    except (KeyError, ValueError) as error:
        print(f"no accounts for the broker: {error}", file=sys.stderr)
        return 1
    write(Path(sys.argv[1]), "\n".join(found) + "\n")
    print(f"wrote {len(found)} accounts: {', '.join(line.split()[1] for line in found)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
