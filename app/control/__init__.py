"""The agent inside a control worker: its lease loop, its heartbeat and its sweeps. Imported by tasks.control."""
