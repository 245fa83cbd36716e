"""Prepare the documents of a run in this process, without Spark, by the code of executors."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import SpooledTemporaryFile
from typing import NamedTuple, Protocol

from mdv.batch.prepare_partition import ExecutorTask, InputDocument, PartitionStager
from mdv.batch.rejects import check_local_rejects_folder, write_local_rejects
from mdv.batch.run import BatchOptions, DocumentCount, PreparationJob
from mdv.db.batch import PartitionAttempt
from mdv.db.engine import make_engine

MAX_KEPT_BYTES = 16 << 20
"""Texts of documents with the same URI are kept in memory up to this size, and in a temporary file beyond."""


class ListedDocument(NamedTuple):
    """A document before it is read: its URI, if it has one."""

    source: str
    uri: str | None


class LocalDocuments(Protocol):
    """Documents to register, read by this process."""

    def listing(self) -> Iterator[ListedDocument]: ...

    def documents(self) -> Iterator[InputDocument]: ...


@dataclass(slots=True)
class LocalPreparation:
    """Lists, prepares and stages documents in this process."""

    source: LocalDocuments
    _duplicated: frozenset[str] = field(default=frozenset(), init=False)
    """The URIs that several documents have."""

    def check_rejects_folder(self, folder: str) -> None:
        check_local_rejects_folder(folder)

    def count(self) -> DocumentCount:
        times: dict[str, int] = {}
        total = 0
        for document in self.source.listing():
            total += 1
            if document.uri is not None:
                times[document.uri] = times.get(document.uri, 0) + 1
        self._duplicated = frozenset(uri for uri, number in times.items() if number > 1)
        return DocumentCount(total, total - sum(times[uri] - 1 for uri in self._duplicated))

    def start(self, task: ExecutorTask, options: BatchOptions) -> PreparationJob:
        return LocalJob(task, order_documents(self.source.documents(), self._duplicated), options)

    def add_rejects(self, file: Path, folder: str) -> None:
        shutil.copy(file, folder)


def order_documents(documents: Iterable[InputDocument], duplicated: Collection[str]) -> Iterator[InputDocument]:
    """Yield documents, at the end those whose URI several have: together for each URI, the last document first. Their
    texts wait in a file: a small archive can contain a thousand times its size."""
    kept: list[tuple[InputDocument, int]] = []
    with SpooledTemporaryFile(MAX_KEPT_BYTES) as texts:
        for document in documents:
            if document.uri not in duplicated:
                yield document
            elif document.content is None:
                kept.append((document, -1))
            else:
                kept.append((document._replace(content=None), texts.tell()))
                texts.write(len(document.content).to_bytes(8))
                texts.write(document.content)
        kept.sort(key=lambda one: one[0].rank, reverse=True)
        kept.sort(key=lambda one: one[0].uri or "")
        for document, start in kept:
            if start < 0:
                yield document
                continue
            texts.seek(start)
            yield document._replace(content=texts.read(int.from_bytes(texts.read(8))))


class _Cancelled(Exception):
    """The run has ended."""


class LocalJob:
    """Prepares and stages documents in a thread, as the only partition of a run."""

    def __init__(self, task: ExecutorTask, documents: Iterator[InputDocument], options: BatchOptions) -> None:
        self._task, self._documents, self._options = task, documents, options
        self._error: Exception | None = None
        self._cancelled = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        attempt = PartitionAttempt(self._task.run, 0, 0)
        stager = PartitionStager(self._task, attempt, make_engine(self._task.database_url, pool_size=1))
        try:
            refused = stager.stage(self._until_cancelled())
            write_local_rejects(refused, self._options.rejects, self._task.run, self._options.add_rejects)
        except Exception as error:
            self._error = error
        finally:
            stager.close()

    def _until_cancelled(self) -> Iterator[InputDocument]:
        for document in self._documents:
            if self._cancelled:
                raise _Cancelled
            yield document

    @property
    def ended(self) -> bool:
        return not self._thread.is_alive()

    def wait(self, seconds: float) -> None:
        self._thread.join(seconds)

    def check(self) -> None:
        if self._error is not None:
            raise self._error

    def end(self) -> None:
        self._cancelled = True
        self._thread.join(30)
