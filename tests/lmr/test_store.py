"""Opening a cache, and using it from several threads."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
import sqlalchemy

from mdv.db import cache as db
from mdv.errors import NotStarted
from mdv.lmr.apply import apply
from mdv.lmr.cache import Cache
from mdv.lmr.local_documents import list_local, put_local
from mdv.model import Term
from tests.support.cache_content import assert_cache_holds, content_of
from tests.support.naive_mdp import LABEL, OWNS, URIS, NaiveMdp


def filled(cache: Cache) -> NaiveMdp:
    mdp = NaiveMdp({URIS[0]: frozenset({(LABEL, Term.literal("x"))})}, {URIS[0]})
    for page in mdp.snapshot():
        apply(cache, page)
    return mdp


def set_format(cache: Cache, number: int) -> None:
    with cache.writing() as connection:
        db.write_state(connection, format=number)


def test_a_cache_is_reopened_with_its_content(cache_url: str) -> None:
    with Cache.open(cache_url) as cache:
        mdp = filled(cache)
    with Cache.open(cache_url) as cache:
        assert_cache_holds(cache, mdp.states[-1], {})


def test_a_cache_of_another_format_is_recreated(cache_url: str) -> None:
    with Cache.open(cache_url) as cache:
        filled(cache)
        set_format(cache, 99)
    with Cache.open(cache_url) as cache:
        assert cache.state().next_cursor is None
        assert content_of(cache).content == {}


def test_a_cache_of_another_format_with_local_documents_is_not_opened(cache_url: str) -> None:
    with Cache.open(cache_url) as cache:
        filled(cache)
        put_local(cache, "http://local/1", f'<{URIS[0]}> <{LABEL}> "x" .'.encode(), "text/turtle")
        set_format(cache, 99)
    with pytest.raises(NotStarted, match="1 local document"):
        Cache.open(cache_url)


def test_a_cache_of_the_previous_format_keeps_its_content_and_takes_a_snapshot(cache_url: str) -> None:
    with Cache.open(cache_url) as cache:
        mdp = filled(cache)
        put_local(cache, "http://local/1", f'<{URIS[0]}> <{LABEL}> "y" .'.encode(), "text/turtle")
        before = content_of(cache)
        with cache.writing() as connection:
            connection.execute(sqlalchemy.text("drop table suspended_rules"))
        set_format(cache, 1)
    with Cache.open(cache_url) as cache:
        assert cache.state().next_cursor is None
        assert content_of(cache) == before
        for page in mdp.snapshot():
            apply(cache, page)
        assert content_of(cache) == before


def test_a_foreign_database_is_not_opened(cache_url: str) -> None:
    engine = db.make_cache_engine(cache_url)
    with db.writing_engine(engine).begin() as connection:
        connection.execute(sqlalchemy.text("create table resources (id integer)"))
    engine.dispose()
    with pytest.raises(NotStarted, match="not the cache of an LMR"):
        Cache.open(cache_url)


@pytest.mark.parametrize("url", ["nonsense", "sqlite://", "sqlite:///:memory:", "mysql://a/b"])
def test_an_invalid_address_is_refused(url: str) -> None:
    with pytest.raises(NotStarted):
        Cache.open(url)


def test_file_that_is_no_cache_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "cache.db"
    path.write_bytes(b"no database at all, but some text that is long enough" * 100)
    with pytest.raises(NotStarted, match="cannot be opened"):
        Cache.open(f"sqlite:///{path}")
    assert path.read_bytes().startswith(b"no database")


def test_a_reader_sees_one_state_during_a_write(cache: Cache) -> None:
    mdp = filled(cache)
    mdp.store[URIS[0]] = frozenset({(LABEL, Term.literal("y"))})
    mdp.commit()
    with cache.reading() as connection:
        before = db.read_state(connection)
        apply(cache, mdp.page(0, 10))
        assert db.read_state(connection) == before
    assert cache.state().position == before.position + 1


def test_threads_read_and_write_concurrently(cache: Cache) -> None:
    """The feed, two writers of local documents and three readers: readers see only complete transactions."""
    mdp = filled(cache)
    done, failures = threading.Event(), []

    def guarded(work: object) -> threading.Thread:
        def run() -> None:
            try:
                work()  # type: ignore[operator]
            except BaseException as error:
                failures.append(error)

        return threading.Thread(target=run)

    def feed() -> None:
        try:
            for number in range(60):
                pair = frozenset({(LABEL, Term.literal(str(number))), (OWNS, Term.uri(URIS[1]))})
                mdp.store |= {URIS[0]: pair, URIS[1]: frozenset({(LABEL, Term.literal(str(number)))})}
                mdp.commit()
                apply(cache, mdp.page(int(cache.state().next_cursor or 0), 100))
        finally:
            done.set()

    def write(name: str) -> None:
        for number in range(30):
            body = f'<{URIS[2]}> <{LABEL}> "{number}" .'.encode()
            put_local(cache, f"http://local/{name}", body, "text/turtle")

    def read() -> None:
        while not done.is_set():
            content = content_of(cache).content
            if URIS[1] in content:
                assert {t for t in content[URIS[0]] if t[0] == LABEL} == content[URIS[1]]

    threads = [guarded(feed), guarded(lambda: write("a")), guarded(lambda: write("b")), *(guarded(read) for _ in "abc")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert failures == []
    assert list_local(cache) == ["http://local/a", "http://local/b"]
    assert content_of(cache).content == {uri: set(said) for uri, said in mdp.states[-1].content.items()}
