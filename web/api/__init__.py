"""The calls, one file a noun."""
