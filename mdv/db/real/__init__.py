"""Statements as programs read them: cursors as of a position."""
