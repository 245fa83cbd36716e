"""Matching in executors: the filter finds the same matches as without candidates, with fewer queries."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from sqlalchemy import Connection, text

from mdv.batch.arrow_codec import StagedDocument, decode_documents, encode_documents
from mdv.batch.prefilter import CandidateMatcher, CandidatePair, ContainsAny, RuleConstants, read_rule_constants
from mdv.batch.run import BatchOptions, run_batch
from mdv.batch.spark_preparation import SparkPreparation
from mdv.db.state import read_state
from mdv.embedded import Postgres
from mdv.mdp.filter import Candidates, read_match_changes
from mdv.mdp.register import Prepared, prepare, register
from tests.support.catalogues import BASE, catalogue
from tests.support.catalogues import RULES as BOOK_RULES
from tests.support.catalogues import SCHEMA as BOOK_SCHEMA
from tests.support.generated_rules import DOCUMENTS, SCHEMA, RuleText, Said, contents, rule_texts, turtle, variants
from tests.support.listed_documents import MEDIA_TYPES, Listed
from tests.support.mdp import Mdp
from tests.support.mdp_content import assert_alike
from tests.support.two_processes import System, systems

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def system(postgres: Postgres, template: str, mdp: Mdp) -> System:
    return systems(type(mdp), postgres, template)


def constants_of(mdp: Mdp, most: int = 1000) -> RuleConstants | None:
    with mdp.engine.begin() as connection:
        return read_rule_constants(connection, read_state(connection), most)


class Executor:
    """Prepare, match and pack as an executor does, with the constants of one point in time."""

    def __init__(self, mdp: Mdp) -> None:
        constants = constants_of(mdp)
        assert constants is not None
        with mdp.engine.connect() as connection:
            schema = mdp.schemas.now(connection).schema
        self._mdp, self._constants, self._matcher = mdp, constants, CandidateMatcher(constants, schema)

    def match(self, documents: Mapping[str, str]) -> tuple[list[Prepared], Candidates]:
        """Return the documents, each packed alone, and the candidates."""
        items: list[Prepared] = []
        pairs: list[CandidatePair] = []
        for uri, said in documents.items():
            item = self._mdp.prepare(uri, said)
            packed, found = decode_documents(
                encode_documents([StagedDocument("", b"", item)], self._matcher.match([item]))
            )
            items += [one.item for one in packed]
            pairs += found
        return items, self._constants.candidates(pairs)


def register_matched(mdp: Mdp, items: Sequence[Prepared], candidates: Candidates) -> None:
    with mdp.engine.begin() as connection:
        register(connection, items, mdp.provider, candidates=candidates)


@contextmanager
def counting_asked(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Return the number of resources that the filter queries, per transaction."""
    import mdv.mdp.filter as filter_

    asked: list[int] = []
    original = filter_.db.queue_filter_run

    def run(pipeline: Any, steps: Any, limit: float) -> Any:
        nodes = [mine for step in steps for name, mine in step.values.items() if name.startswith("node")]
        asked.append(sum(len(re.findall(r"\d+", mine)) for mine in nodes))
        return original(pipeline, steps, limit)

    with monkeypatch.context() as patched:
        patched.setattr(filter_.db, "queue_filter_run", run)
        yield asked


# -- random rules and documents

TOLD = ("lmr_resources", "lmr_ranges", "publications", "feed")
BATCHES = st.lists(
    st.dictionaries(st.sampled_from(DOCUMENTS), contents(), min_size=1, max_size=3), min_size=3, max_size=6
)


@st.composite
def rule_bases(draw: st.DrawFn) -> list[RuleText]:
    """Rules of a few groups, with several constants each."""
    bases = draw(st.lists(rule_texts(small=True), min_size=5, max_size=8))
    return [*bases, *(draw(variants(base)) for base in bases for _ in range(draw(st.integers(0, 2))))]


@pytest.mark.full
@settings(
    max_examples=8, deadline=None, phases=[Phase.generate],  # shrinking would take minutes
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large],
)  # fmt: skip
@given(rules=rule_bases(), later=rule_bases(), batches=BATCHES, stale=st.integers(0, 6))
def test_the_filter_finds_the_same_matches_with_and_without_candidates(
    system: System, rules: list[RuleText], later: list[RuleText], batches: list[dict[str, Said]], stale: int
) -> None:
    """Some resources are known before, some are new; several documents of a batch describe the same resource; some
    batches were matched before other rules were added."""
    with system() as (mdp, _):
        mdp.put_schema(SCHEMA)
        mdp.subscribe(mdp.create_lmr("reader"), *dict.fromkeys(rule.text for rule in rules))
        executor = Executor(mdp)
        for number, batch in enumerate(batches):
            items, candidates = executor.match({uri: turtle(said) for uri, said in batch.items()})
            if number == stale:
                mdp.subscribe(mdp.create_lmr("later"), *dict.fromkeys(rule.text for rule in later))
                executor = Executor(mdp)
            with mdp.engine.begin() as connection:
                without = connection.begin_nested()
                wanted = registered(mdp, connection, items, None)
                without.rollback()
                assert registered(mdp, connection, items, candidates) == wanted


def registered(mdp: Mdp, connection: Connection, items: Sequence[Prepared], candidates: Candidates | None) -> Any:
    """The results of a registration: answers, filter changes, and the content and events of LMRs."""
    answers = register(connection, items, mdp.provider, candidates=candidates)
    told = [sorted(map(repr, connection.execute(text(f"select * from {name}")))) for name in TOLD]
    return answers, sorted(read_match_changes(connection)), told


# -- each kind of predicate

KINDS = [
    ("b.name = 'ab'", ':name "ab"', ':name "a"'),
    ("b.tag? = 'ab'", ':tag "x", "ab"@en', ':tag "x"'),
    ("b.name contains 'rare word'", ':name "a rare word here"', ':name "rare, a word"'),
    ("b.name contains 'b'", ':name "abc"', ':name "ac"'),
    ("b.name startswith 'rare w'", ':name "rare words"', ':name "a rare word"'),
    ("b.name endswith 'word'", ':name "a rare word"', ':name "rare words"'),
    ("b.about? startswith 'http://r/2'", ":mentions <http://r/22>", ":mentions <http://r/32>"),
    ("b endswith 'r/hit7'", ':name "hit"', ':name "miss"'),
    ("not (b.name startswith 'x') and b.pages = 1", ':name "a" ; :pages 1', ':name "a" ; :pages 2'),
    ("b.total = 5 and b.name != 'x'", ':sold 5 ; :name "a"', ':sold 6 ; :name "a"'),
    ("b.total = 5 and b.name != 'x'", ':sold 5 ; :name "a"', ':sold 5 ; :name "x"'),
    ("b.total = 5.00 and b.open = true", ':total "5.0" ; :open "1"', ':total "5.0" ; :open "false"'),
    ("b.pages > 5 and b.name = 'a'", ':pages 6 ; :name "a"', ':pages 5 ; :name "a"'),
    ("b.pages >= 5 and b.name = 'a'", ':pages 5 ; :name "a"', ':pages 4 ; :name "a"'),
    ("b.pages < 5 and b.name = 'a'", ':pages 4 ; :name "a"', ':pages 5 ; :name "a"'),
    ("b.pages <= 5 and b.name = 'a'", ':pages 5 ; :name "a"', ':pages 6 ; :name "a"'),
    ("b.born = '1950-06-15' and b.name = 'a'", ':born "1950-06-15" ; :name "a"', ':born "1950-06-16" ; :name "a"'),
    ("b.author = <http://r/2>", ":author <http://r/2>", ":author <http://r/3>"),
    ("b.about? contains 'r/2'", ":mentions <http://r/2>", ":mentions <http://r/3>"),
    ("b.source = 'http://r/2'", ":source <http://r/2>", ':source "r/2"'),
    ("not (b.name contains 'x') and b.pages = 1", ':name "a" ; :pages 1', ':name "a" ; :pages 2'),
]


def test_a_new_resource_is_queried_only_if_its_values_satisfy_a_constant(
    mdp: Mdp, monkeypatch: pytest.MonkeyPatch
) -> None:
    mdp.put_schema(SCHEMA)
    for number, (where, hit, miss) in enumerate(KINDS):
        (rule,) = mdp.add_rules([f"search Book b register b where {where}"])
        executor = Executor(mdp)
        with counting_asked(monkeypatch) as asked:
            register_matched(mdp, *executor.match({f"http://d/{number}": f"<http://r/hit{number}> a :Book ; {hit} ."}))
            assert [uri for _, uri, matched in mdp.changes() if matched] == [f"http://r/hit{number}"], where
            register_matched(
                mdp, *executor.match({f"http://e/{number}": f"<http://r/miss{number}> a :Book ; {miss} ."})
            )
            assert mdp.changes() == []
        assert asked[0] > 0 and asked[1] == 0, where
        mdp.remove_rules([rule.id])


def test_a_book_is_not_queried_if_only_its_author_has_the_property(mdp: Mdp, monkeypatch: pytest.MonkeyPatch) -> None:
    mdp.put_schema(SCHEMA)
    mdp.add_rules(["search Book b register b where b.author.name = 'x'"])
    executor = Executor(mdp)
    with counting_asked(monkeypatch) as asked:
        for number, name in enumerate("xy"):
            book, agent = f"<http://r/b{number}>", f"<http://r/a{number}>"
            said = f"{book} a :Book ; :author {agent} . {agent} a :Agent ; :name '{name}' ."
            register_matched(mdp, *executor.match({f"http://d/{number}": said}))
            assert len(mdp.changes()) == (name == "x")
    assert asked == [2, 1]


def test_a_rule_on_one_uri_queries_only_that_resource(mdp: Mdp, monkeypatch: pytest.MonkeyPatch) -> None:
    mdp.put_schema(SCHEMA)
    mdp.add_rules(["search Book b register b where b = <http://r/a>"])
    executor = Executor(mdp)
    with counting_asked(monkeypatch) as asked:
        register_matched(mdp, *executor.match({"http://d/1": "<http://r/a> a :Book . <http://r/b> a :Book ."}))
    assert [uri for _, uri, _ in mdp.changes()] == ["http://r/a"]
    assert asked == [1]


def test_resources_known_before_are_always_queried(mdp: Mdp) -> None:
    mdp.put_schema(SCHEMA)
    mdp.add_rules(["search Book b register b where b.name = 'ab' and b.pages > 3"])
    mdp.put({"http://d/1": '<http://r/a> a :Book ; :name "ab" .'})
    register_matched(mdp, *Executor(mdp).match({"http://d/2": "<http://r/a> :pages 7 ."}))
    assert [uri for _, uri, matched in mdp.changes() if matched] == ["http://r/a"]


def test_several_documents_of_a_transaction_describe_one_new_resource_together(mdp: Mdp) -> None:
    mdp.put_schema(SCHEMA)
    mdp.add_rules(["search Book b register b where b.name = 'ab' and b.pages > 3"])
    parts = {"http://d/1": '<http://r/a> a :Book ; :name "ab" .', "http://d/2": "<http://r/a> :pages 7 ."}
    register_matched(mdp, *Executor(mdp).match(parts))
    assert [uri for _, uri, matched in mdp.changes() if matched] == ["http://r/a"]


@pytest.mark.parametrize("later", ["rule of the same group", "schema"])
def test_candidates_of_an_older_rule_base_or_schema_are_not_used(mdp: Mdp, later: str) -> None:
    mdp.put_schema(SCHEMA)
    mdp.add_rules(["search Book b register b where b.tag? = 'one'"])
    executor = Executor(mdp)
    items, candidates = executor.match({"http://d/1": '<http://r/a> a :Book ; :tag "two" ; :title "one" .'})
    if later == "schema":  # a title is a tag from here on
        mdp.put_schema(SCHEMA + ":title rdfs:subPropertyOf :tag ; rdfs:range rdfs:Literal .")
    else:
        mdp.add_rules(["search Book b register b where b.tag? = 'two'"])
    register_matched(mdp, items, candidates)
    assert [uri for _, uri, matched in mdp.changes() if matched] == ["http://r/a"]


def test_too_many_constants_are_left_to_the_filter(mdp: Mdp) -> None:
    mdp.put_schema(SCHEMA)
    mdp.add_rules([f"search Book b register b where b.name = 'n{number}'" for number in range(5)])
    mdp.add_rules([f"search Book b register b where b.pages > {number}" for number in range(50)])
    assert constants_of(mdp, most=4) is None
    found = constants_of(mdp, most=5)
    assert found is not None and len(found.predicates) == 1  # ranges are found by other means and not counted


def test_many_constants_with_one_gram_are_not_tried_one_by_one() -> None:
    crowd = [f"abcdef{number}" for number in range(1000)]
    assert ContainsAny({"abcdef": crowd}, frozenset({6})).holds("xabcdefx")
    assert not ContainsAny({"abcdef": crowd[:3]}, frozenset({6})).holds("xabcdefx")


# -- through Spark


def test_a_run_with_matching_in_spark_leaves_the_same_state_as_one_without(
    spark: SparkSession, system: System, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = catalogue(60)
    with system() as (plain, _), system() as (matched, _):
        for mdp in (plain, matched):
            mdp.put_schema(BOOK_SCHEMA)
            mdp.subscribe(mdp.create_lmr("reader"), *BOOK_RULES)
        with counting_asked(monkeypatch) as asked, plain.engine.connect() as connection:
            schema = plain.schemas.now(connection)
            plain.register_batch([prepare(BASE + n, t, MEDIA_TYPES[Path(n).suffix], schema) for n, t in files.items()])
        url = matched.engine.url.render_as_string(hide_password=False).replace("+psycopg", "")
        order = BatchOptions("a test", 1 << 25, str(tmp_path / "rejects"), match_in_spark=True)
        with counting_asked(monkeypatch) as asked_less:
            run_batch(
                SparkPreparation(spark, Listed(spark, files, BASE)), matched.engine, url, order, lambda progress: None
            )
        assert_alike(plain.engine, matched.engine)
        assert 0 < sum(asked_less) < sum(asked)
