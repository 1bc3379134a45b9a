from config.beat import SWEEPS, schedule


def test_beat_rings_each_sweep_by_its_name_on_the_control_queue() -> None:
    entries = schedule(sweep_seconds=2, retention_sweep_seconds=60)

    assert set(entries) == {"heartbeat-sweeper", "lease-expiry", "requeue", "batch-expiry", "retention"} == set(SWEEPS)
    for name, entry in entries.items():
        assert (entry["task"], entry["args"], entry["options"]) == ("sweep", (name,), {"queue": "control"})
    assert entries["requeue"]["schedule"] == 2
    assert entries["retention"]["schedule"] == 60
