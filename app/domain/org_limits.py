"""What one org may have at most, so that none fills what all share.

A quota bounds what is stored, exactly, however many calls race for the last place. The other bounds are of what is
under way at one API process; those of all orgs together are ALL_ORGS times as high.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from app.domain.errors import LimitReached

ALL_ORGS = 4
"""What is under way at a process for all orgs together may be so many times what it may be for one."""


@dataclass(frozen=True, slots=True)
class OrgLimits:
    """Each bound is the setting of the same name with `org_` before it."""

    files: int = 100_000
    file_bytes: int = 2**40
    batches: int = 10_000
    pools: int = 100
    webhook_endpoints: int = 50

    streams: int = 200
    polls: int = 10_000
    uploads: int = 64
    downloads: int = 256
    retries: int = 1
    inputs: int = 256
    hand_ins: int = 64
    hand_in_bytes: int = 256 * 2**20
    webhook_tests: int = 4
    bodies: int = 2_000
    body_bytes: int = 64 * 2**20


_QUOTAS: Mapping[str, tuple[str, str]] = {
    "files": ("files", "Delete files that you no longer need, which makes room at once"),
    "file_bytes": ("bytes in files", "Delete files that you no longer need, which makes room at once"),
    "batches": ("batches that have not ended", "Wait until some have ended, or cancel some"),
    "pools": ("pools of its own", "Use a pool that you have"),
    "webhook_endpoints": ("webhook endpoints", "Delete one that you no longer need"),
}
"""What each quota counts, and what makes room."""


def check_quota(limits: OrgLimits, name: str, used: int, added: int = 1) -> None:
    """Raise LimitReached when an org that has `used` of what the quota `name` counts would have too much with more."""
    bound = getattr(limits, name)
    if used + added > bound:
        counted, remedy = _QUOTAS[name]
        more = f", and this adds {added:,}" if added > 1 else ""
        raise LimitReached(
            f"limit org_{name} reached: this org has {used:,} of at most {bound:,} {counted}{more}. {remedy}, or ask "
            f"the operator of this service to raise GPUYARD_ORG_{name.upper()}.",
            code="limit_reached",
        )
