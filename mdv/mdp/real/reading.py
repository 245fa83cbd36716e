"""What a reader of a process asks for, and says."""

from __future__ import annotations

from mdv.db.real.processes import ENDED_STATES, ProcessNews, note_gone, note_read, read_news

__all__ = ["ENDED_STATES", "ProcessNews", "note_gone", "note_read", "read_news"]
