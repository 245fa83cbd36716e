"""The script for spark-submit. spark-submit puts this folder first on Python's module path, so it must contain nothing
else."""
