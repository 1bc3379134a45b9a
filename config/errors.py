"""What a process ends with that cannot use its settings. Light: every command knows it."""


class SettingsError(Exception):
    """The settings cannot be used; the message names each wrong one. The process ends with it."""
