"""Naming the documents of a batch."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mdv.batch.document_naming import Naming
from mdv.cli.source_files import SourceFile
from mdv.errors import BadCommand, BadRequest
from mdv.rdf.parse import is_absolute_iri

STEPS = st.text(st.characters(exclude_characters="/\0", exclude_categories=["Cs"]), min_size=1, max_size=12)
PATHS = st.lists(STEPS.filter(lambda step: step not in (".", "..")), min_size=1, max_size=4).map("/".join)
BASES = st.sampled_from(["http://a/", "http://a/b", "http://a/?q=", "urn:x:", "http://a/b-", "http://a/b_"])
GUTENBERG = "http://www.gutenberg.org/cache/epub/{1}/pg{1}.rdf"


@given(PATHS, BASES)
def test_with_a_base_a_file_gets_the_same_name_as_from_mdv_register(path: str, base: str) -> None:
    named = Naming(base=base).uri(f"file:/folder/{path}", path)
    assert named == SourceFile(Path("/folder") / path, path).uri(base)


@given(PATHS)
def test_without_options_a_file_gets_the_same_name_as_from_mdv_register(path: str) -> None:
    assert Naming().uri(f"file:/no such folder/{path}", path) == Path(f"/no such folder/{path}").as_uri()


@given(PATHS)
def test_every_path_gives_an_absolute_iri(path: str) -> None:
    for naming in (Naming(pattern="http://a/{path}"), Naming(pattern="urn:x:{stem}:{name}"), Naming(base="http://a/")):
        assert is_absolute_iri(naming.uri("file:/x", path))


@given(st.integers(0, 10**9), st.sampled_from(["2014/pg{}.rdf", "pg{}.rdf", "a/7/pg{}.rdf.gz", "pg{}-8.rdf"]))
def test_numbers_are_taken_from_the_file_name_only(number: int, path: str) -> None:
    assert Naming(pattern=GUTENBERG).uri("file:/x", path.format(number)) == GUTENBERG.replace("{1}", str(number))


def test_a_pattern_uses_groups_of_match_by_number_and_by_name() -> None:
    naming = Naming(pattern="http://a/{year}/{2}", match=r"(?P<year>\d{4})/pg(\d+)")
    assert naming.uri("file:/x", "books/2014/pg42.rdf") == "http://a/2014/42"


def test_parts_of_a_path_are_quoted() -> None:
    naming = Naming(pattern="http://a/{path}?n={name}&s={stem}&0={0}")
    uri = naming.uri("file:/x", "b c/d#é?.ttl.gz")
    assert (
        uri == "http://a/b%20c/d%23%C3%A9%3F.ttl.gz?n=d%23%C3%A9%3F.ttl.gz&s=d%23%C3%A9%3F&0=b%20c/d%23%C3%A9%3F.ttl.gz"
    )


def test_a_name_that_is_not_utf_8_keeps_its_bytes() -> None:
    relative = b"caf\xe9.ttl".decode("utf-8", "surrogateescape")
    assert Naming(base="http://a/").uri("file:/x.tar", relative, in_archive=True) == "http://a/caf%E9.ttl"


def test_an_archive_member_is_named_by_its_path_in_the_archive() -> None:
    path, member = "hdfs://host:8020/b 1.tar", "2014/pg 42.rdf"
    assert Naming().uri(path, member, in_archive=True) == "hdfs://host:8020/b%201.tar!/2014/pg%2042.rdf"
    assert Naming(base="http://a").uri(path, member, in_archive=True) == "http://a/2014/pg%2042.rdf"


@pytest.mark.parametrize(
    ("naming", "path", "words"),
    [
        (Naming(pattern=GUTENBERG), "2014/README.rdf", ["2014/README.rdf", GUTENBERG, "{1}"]),
        (Naming(pattern="http://a/{2}"), "pg42.rdf", ["pg42.rdf", "{2}"]),
        (Naming(pattern="http://a/{1}", match=r"x(\d+)"), "pg42.rdf", ["pg42.rdf", r"--match 'x(\\d+)'"]),
        (Naming(pattern="http://a/{1}", match=r"(\d+)?"), "pg.rdf", ["pg.rdf", "{1}"]),
        (Naming(base="http://a/"), "a" * 2048 + ".rdf", ["longer than 2,048 bytes"]),
    ],
)
def test_a_path_that_does_not_fit_is_refused_with_path_and_pattern(naming: Naming, path: str, words: list[str]) -> None:
    with pytest.raises(BadRequest) as refused:
        naming.uri("file:/x", path)
    assert all(word in refused.value.detail for word in words), refused.value.detail


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"pattern": "http://a/{nr}"}, r"contains \{nr\}, which is unknown. Known are \{1\}, \{2\}, \{path\}"),
        ({"pattern": "http://a/{2}", "match": r"(?P<y>\d)"}, r"contains \{2\}.*Known are \{1\}, \{y\}, \{path\}"),
        ({"pattern": "http://a/doc.rdf"}, "gives every document the same URI"),
        ({"pattern": "{path}"}, "not an absolute URI"),
        ({"pattern": "http://a/{1}#x"}, "has a fragment"),
        ({"pattern": "http://a/{1}/{"}, "not an absolute URI"),
        ({"pattern": "urn:mdv:{1}"}, "MDV itself writes these documents"),
        ({"pattern": "http://a/{1}", "match": "("}, "not a regular expression"),
        ({"match": "x"}, "Add --uri"),
        ({"base": "books"}, "not an absolute URI"),
        ({"base": "http://a/#"}, "has a fragment"),
        ({"base": "http://a/", "manifest": "m.csv"}, "Use only one of them"),
    ],
)
def test_invalid_options_are_refused(options: dict[str, str], words: str) -> None:
    with pytest.raises(BadCommand) as refused:
        Naming(**options)
    assert re.search(words, refused.value.detail), refused.value.detail
