"""Replication over HTTP: keys and signatures of members, messages as JSON, calls to peers."""
