"""MDV: a publish/subscribe metadata server."""

__version__ = "0.1.0"
