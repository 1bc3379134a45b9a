"""What ends `gpuyard up` and whoever starts a broker, in words for people. Light: every command knows them."""


class BrokerError(Exception):
    """No broker can be started here; the message says what to do."""


class FolderTaken(Exception):
    """Another installation runs on the data folder; the message is for people."""


class FolderUnusable(Exception):
    """No data can be kept where it was said; the message is for people."""

    exit_code = 2


class StackError(Exception):
    """The installation cannot start; the message says why and where to look."""
