"""Benchmarks of MDV on this machine, against a lower bound (floor) measured in the same run."""
