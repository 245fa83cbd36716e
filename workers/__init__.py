"""Celery workers: receive wake-ups and execute jobs."""
