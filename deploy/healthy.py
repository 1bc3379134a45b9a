"""A container's health check: exit 0 when a page answers 200, and when a figure on it is not above a bound.

Usage: python healthy.py URL [FIGURE MOST]

A page of metrics answers as long as its process lives. A worker that nobody answers is no good either, so its check
names the figure that tells how long that is.
"""

import sys
from urllib.error import URLError
from urllib.request import ProxyHandler, build_opener

SECONDS = 5
# Docker may give each container the host's proxy: it is no way to the container itself.
DIRECTLY = build_opener(ProxyHandler({}))


def why_not(url: str, figure: str | None = None, most: float = 0) -> str | None:
    """Say what is wrong; None when nothing is."""
    try:
        with DIRECTLY.open(url, timeout=SECONDS) as answer:
            page = answer.read().decode()
    except (URLError, OSError) as error:
        return f"{url}: {error}"
    if figure is None:
        return None
    found = next((line.split()[-1] for line in page.splitlines() if line.startswith(f"{figure} ")), None)
    if found is None:
        return f"{url} has no {figure}"
    return f"{figure} is {found}, above {most:g}" if float(found) > most else None


def main() -> int:
    """Say on standard output what `docker inspect` will show."""
    url, *bound = sys.argv[1:]
    problem = why_not(url, bound[0], float(bound[1])) if bound else why_not(url)
    if problem:
        print(problem)
    return 1 if problem else 0


if __name__ == "__main__":
    sys.exit(main())
