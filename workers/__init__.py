"""Celery: carries the wake-up to whoever carries out the jobs."""
