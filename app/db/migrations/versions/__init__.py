"""One file a revision, numbered."""
