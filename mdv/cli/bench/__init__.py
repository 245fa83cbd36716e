"""`mdv bench` measures MDV on this machine. Each measurement has its own module."""

from __future__ import annotations

from mdv.cli.bench import backbone, batch, eca, load, pages, paper, peers, quick, real, scale, soak
from mdv.cli.bench.options import bench

__all__ = ["backbone", "batch", "bench", "eca", "load", "pages", "paper", "peers", "quick", "real", "scale", "soak"]
