"""Benchmarks: what MDV costs on this machine, against a floor measured in the same run."""
