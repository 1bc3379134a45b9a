"""The authorities of one's own, which SSL_CERT_FILE names to whoever speaks TLS in this process."""

import os


def check_authorities() -> None:
    """Raise ValueError when they cannot be read: what a TLS library says of it names no file, and comes later."""
    if not (file := os.environ.get("SSL_CERT_FILE")):
        return
    from ssl import PROTOCOL_TLS_CLIENT, SSLContext  # noqa: PLC0415 - what calls no https needs none of it

    try:
        SSLContext(PROTOCOL_TLS_CLIENT).load_verify_locations(file)
    except OSError as error:
        raise ValueError(
            f"SSL_CERT_FILE names {file}, which holds no certificates: {error.strerror or error}"
        ) from None
