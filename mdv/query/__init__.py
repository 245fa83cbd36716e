"""Compile patterns to SQL, for rules and queries. Callers pass the tables."""
