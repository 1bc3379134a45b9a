"""The processes of one machine: what `gpuyard up` starts, watches and stops. Used by `app.cli` and by tests.

A room of its own, because watching processes is no command line, and tests need a broker without one. It starts other
roles by their command and imports none of them.
"""
