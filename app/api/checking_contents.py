"""What `gpuyard doctor --contents` runs, where database and contents are: a line of JSON for each finding."""

import json
import sys
from dataclasses import asdict

from app.blobs.store import BlobError
from app.db import schema
from app.services import content_checks, content_store
from app.services.content_checks import Totals
from app.services.opening import open_yard
from config.logging import configure
from config.settings import ServerSettings


def run(settings: ServerSettings) -> int:
    """Read everything, and say last how much that was; gives the exit code. Raises what app.api.__main__ says."""
    configure("contents", level="CRITICAL")  # what is found is printed, and not logged as well
    yard = open_yard(settings)
    totals = Totals()
    try:
        schema.refuse_none(yard.store)
        schema.check(yard.store)
        content_store.expect(yard)
        for found in content_checks.check(yard, totals):
            print(json.dumps(asdict(found)), flush=True)
    except BlobError as error:
        print(f"gpuyard: {error}", file=sys.stderr)
        return 1
    finally:
        yard.store.close()
    print(json.dumps(asdict(totals)))
    return 1 if totals.wrong else 0
