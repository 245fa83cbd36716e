"""`mdv bench`: what things cost on this machine, one file for each measurement."""

from __future__ import annotations

from mdv.cli.bench import batch, load, pages, paper, peers, quick, scale, soak
from mdv.cli.bench.options import bench

__all__ = ["batch", "bench", "load", "pages", "paper", "peers", "quick", "scale", "soak"]
