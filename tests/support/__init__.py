"""Helpers shared by several tests. Tests import no module outside this package."""
