"""Settings, Celery configuration, queues, beat schedule and logging. Read at entry points only; knows app.domain."""
