"""Settings of what one org may have at most (app.domain.org_limits)."""

from pydantic import Field, PositiveInt

from app.domain.org_limits import OrgLimits
from config.fields import Common

_DEFAULT = OrgLimits()
_UNDER_WAY = "The orgs together may have four times as much; calls above that get 503."


class OrgLimitSettings(Common):
    """Bounds of an org that honest use does not reach: of what it stores, and of what it has under way at once."""

    org_files: PositiveInt = Field(_DEFAULT.files, description="Files an org may store, result files included.")
    org_file_bytes: PositiveInt = Field(
        _DEFAULT.file_bytes,
        description="Bytes of all files of an org. Results are always stored; uploads are refused above it.",
    )
    org_batches: PositiveInt = Field(_DEFAULT.batches, description="Batches of an org that have not ended.")
    org_pools: PositiveInt = Field(_DEFAULT.pools, description="Pools of an org's own; shared pools do not count.")
    org_webhook_endpoints: PositiveInt = Field(_DEFAULT.webhook_endpoints, description="Webhook endpoints of an org.")
    org_streams: PositiveInt = Field(
        _DEFAULT.streams, description=f"Event streams an org may have open at one API process. {_UNDER_WAY}"
    )
    org_polls: PositiveInt = Field(
        _DEFAULT.polls, description=f"Workers of an org that may wait for work at one API process. {_UNDER_WAY}"
    )
    org_uploads: PositiveInt = Field(
        _DEFAULT.uploads, description=f"Uploads of an org under way at one API process. {_UNDER_WAY}"
    )
    org_downloads: PositiveInt = Field(
        _DEFAULT.downloads, description=f"Downloads of an org under way at one API process. {_UNDER_WAY}"
    )
    org_retries: PositiveInt = Field(
        _DEFAULT.retries,
        description=f"Retries of batches whose input an API process is writing for an org. {_UNDER_WAY}",
    )
    org_inputs: PositiveInt = Field(
        _DEFAULT.inputs,
        description=f"Downloads of input by workers of an org under way at one API process. {_UNDER_WAY}",
    )
    org_hand_ins: PositiveInt = Field(
        _DEFAULT.hand_ins,
        description=f"Calls with results of workers of an org under way at one API process. {_UNDER_WAY}",
    )
    org_hand_in_bytes: PositiveInt = Field(
        _DEFAULT.hand_in_bytes,
        description="Bytes of results that workers of an org may be sending to one API process; a single larger call "
        f"is taken alone. {_UNDER_WAY}",
    )
    org_webhook_tests: PositiveInt = Field(
        _DEFAULT.webhook_tests, description=f"Webhook tests of an org under way at one API process. {_UNDER_WAY}"
    )
    org_bodies: PositiveInt = Field(
        _DEFAULT.bodies,
        description="Calls of an org whose JSON body has not arrived in full, or is longer than 64 KiB, at one API "
        f"process. {_UNDER_WAY}",
    )
    org_body_bytes: PositiveInt = Field(_DEFAULT.body_bytes, description=f"Bytes of these bodies. {_UNDER_WAY}")
