"""Adaptive batch size: how many bytes of documents a worker registers in one transaction.

The paper leaves this question open at the end of section 4. When few jobs are queued, a document is registered alone.
Under load, a batch takes the queued documents up to about `TARGET_BATCH_SECONDS`. A larger batch costs less per
document, but jobs that arrive after it has started wait longer. The cost per byte depends on the documents, the rules
and the machine, so it is measured from batch to batch.
"""

from __future__ import annotations

TARGET_BATCH_SECONDS = 0.3
"""The target duration of a batch."""
MAX_DOCUMENTS_PER_BATCH = 1000
INITIAL_BATCH_BYTES = 100_000.0
MIN_BATCH_BYTES = 10_000.0
MAX_BATCH_BYTES = 64 * 1024 * 1024.0
"""The limit for document texts held in memory at once. A single larger document is registered alone."""


class BatchSizer:
    """Chooses the size of a worker's next batch from the measured cost of its batches.

    >>> sizer = BatchSizer()
    >>> sizer.bytes
    100000
    >>> sizer.record_batch(100_000, 0.1)
    >>> sizer.bytes
    150000
    >>> sizer.record_batch(100_000, 3.0)
    >>> sizer.bytes
    18750
    """

    def __init__(self, target: float = TARGET_BATCH_SECONDS) -> None:
        self._target = target
        self._seconds_per_byte = target / INITIAL_BATCH_BYTES

    @property
    def bytes(self) -> int:
        """The maximum size of the next batch."""
        return int(min(max(self._target / self._seconds_per_byte, MIN_BATCH_BYTES), MAX_BATCH_BYTES))

    def record_batch(self, size: int, seconds: float) -> None:
        """Record that a batch of `size` bytes took `seconds`."""
        self._seconds_per_byte = (self._seconds_per_byte + seconds / size) / 2
