"""Periodic passes, one file each, every one a run_once(limit) that returns counts. Imported by tasks.sweeps."""
