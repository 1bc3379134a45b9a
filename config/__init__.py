"""Settings, Celery configuration, queues, beat schedule and logging. A leaf, read at entry points only."""
