"""The rules: states, transition tables, decisions. Standard library only, no I/O, no clock. Everyone may import it."""
