"""The backbone in Postgres: the log, facts, marks, and what changes write for it."""
