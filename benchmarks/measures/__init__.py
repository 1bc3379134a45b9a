"""One target or two a file: each function measures, and gives findings."""
