"""What Python's garbage collector is told at the start of a process that lives long."""

import gc


def spare_what_is_imported() -> None:
    """Have no later collection look at what is there now: it stays, and each full look at it stops every thread.

    Called once a process, when its imports are done. Nothing that is garbage now is ever found if it has cycles.
    """
    gc.collect()
    gc.freeze()
