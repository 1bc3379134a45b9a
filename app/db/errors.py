"""Why a database cannot be used. `app.db.store` raises it, and whoever asks the database may get it."""


class DatabaseUnavailable(Exception):
    """The database cannot be reached or opened; the message says which and why. Nothing was written.

    What follows the first colon is a driver's or the system's: it names hosts, users and folders.
    """

    @property
    def reason(self) -> str:
        """What a caller without an admin's key may read."""
        return str(self).partition(":")[0]


class DatabaseFull(DatabaseUnavailable):
    """The disk of the database is full. It can be read; writes are taken again once there is room."""
