"""What the system says of a file, for people. Standard library only; both sides may import it."""


def plainly(error: Exception) -> str:
    """Give a system's error as `/data/gpuyard: Permission denied`, without Python's words; any other one as it is."""
    if not isinstance(error, OSError) or error.strerror is None:
        return str(error)
    if error.filename is None:
        return error.strerror
    # Our folders may all be there already when they are made: it is something else that has the name.
    what = "it is no folder" if isinstance(error, FileExistsError) else error.strerror
    return f"{error.filename}: {what}"
