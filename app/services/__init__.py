"""Use cases: one function is one transaction and one verb. Imported by app.api, app.sweeps and tasks.control."""
