"""Celery tasks, three lines each: parse, call, answer."""
