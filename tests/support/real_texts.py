"""The programs of the ReAL paper, and random syntax trees."""

from __future__ import annotations

from decimal import Decimal

from hypothesis import strategies as st

from mdv.real.syntax import (
    AddExpr,
    AndExpr,
    CallExpr,
    ContextExpr,
    EnsureExpr,
    ExpandExpr,
    Expression,
    FirstExpr,
    FreshExpr,
    InferExpr,
    LastExpr,
    NoExpr,
    OrExpr,
    ReadExpr,
    RealList,
    RealLiteral,
    RealName,
    RealVariable,
    RepeatExpr,
    SandboxExpr,
    SpawnExpr,
    StopExpr,
    TakeExpr,
    TransactionExpr,
    TriplePattern,
    TruthExpr,
    UnionExpr,
    WaitExpr,
)
from mdv.rules.ast import Span

PAPER = {
    "annotations": 'rdf:label(test:c1,"my class" | en) AND ex:weight(test:c1,"0.12456" | xsd:decimal)',
    "1": "rdf:type(?sub, ?class)",
    "1b": "rdf:type(ex:nantes-triptych, ex:Artwork)",
    "2": "- rdf:type(?sub, ex:Artwork)",
    "3": "! rdf:type(?sub, ex:Artwork)",
    "4": "+ rdf:type(ex:nantes-Triptych,ex:Artwork)",
    "wait": "WAIT rdf:type(ex:nantes-triptych, ex:Artwork)",
    "wait -": "WAIT -rdf:type(ex:nantes-triptych, ex:Artwork)",
    "wait +": "WAIT +rdf:type(ex:nantes-triptych, ex:Artwork)",
    "5": "rdf:type(?sub,ex:ArtWork) AND ex:creator(?sub,ex:BillViola)",
    "6": """$iri AND
+rdfs:label(?iri,“Bill Viola”) AND
rdf:type(?sub, ex:ArtWork) AND
-ex:creator(?sub, ex:BillViola) AND
+ex:creator(?sub, ?iri)""",
    "no": "NO rdf:type(?x,rdfs:Class)",
    "repeat": 'REPEAT (rdf:type(?x,ex:Book) AND +rdfs:label(?x,"scanned"))',
    "repeat 1": 'REPEAT 1 (rdf:type(?x,rdfs:Class) AND + rdfs:label(?x,"scanned"))',
    "repeat ?count": 'REPEAT ?count (rdf:type(?x,rdfs:Class) AND +rdfs:label(?x,"scanned"))',
    "6b": """rdf:type( ?sub, ex:ArtWork) AND
- ex:creator(?sub, ex:BillViola) AND
$iri AND
+ rdfs:label(?iri,"Bill Viola") AND
+ ex:creator(?sub, ?iri)""",
    "6c": """$iri AND [
+ rdfs:label(?iri,"Bill Viola") AND
rdf:type( ?sub, ex:ArtWork) AND
- ex:creator(?sub, ex:BillViola) AND
+ ex:creator(?sub, ?iri)
]""",
}
FIGURE_1 = """rdf:type ( ?ctf, lrm:CertificationService) AND
$cr AND
+rdf:type ( ?cr, lrm:CertificationRequest) AND
+lrm:ofResource ( ?cr, ?rsc) AND
+lrm:requestedService ( ?cr, ?ctf) AND
+lrm:byAgent ( ?cr, ?agent) AND
+lrm:versionKind ( ?cr, ?kind) AND
CALL primitive:service ( ?cr) AND
NO lrm:error ( ?cr, ?) AND
lrm:certificate ( ?cr, ?certif)"""

_HERE = Span(0, 0)
_words = st.from_regex(r"[a-z][a-z0-9-]{0,3}", fullmatch=True)
_variables = st.builds(RealVariable, st.just(_HERE), _words)
_local_names = st.from_regex(r"[a-z0-9]([a-z.-]{0,2}[a-z0-9-])?", fullmatch=True)
_names = _local_names.map(lambda word: RealName(_HERE, f"ex:{word}")) | st.just(RealName(_HERE, "<http://a/b#c>"))
_patterns = _variables | _names | st.just(RealVariable(_HERE, ""))
_numbers = st.sampled_from(["0", "-12", "+3", "4.50", ".5", "6e7", "-1.5E-3"]).map(
    lambda text: RealLiteral(_HERE, "number", text)
)
_texts = st.builds(
    RealLiteral, st.just(_HERE), st.just("text"), st.text(max_size=6).filter(lambda text: "\0" not in text)
)
_languages = st.sampled_from(["en", "de-at"])
_literals = (
    _numbers
    | _texts
    | st.builds(lambda text, lang: RealLiteral(_HERE, "text", text.text, lang), _texts, _languages)
    | st.builds(lambda text, name: RealLiteral(_HERE, "text", text.text, None, name), _texts, _names)
    | _words.map(lambda word: RealLiteral(_HERE, "symbol", word))
)
_items = _patterns | _literals
_lists = st.recursive(
    st.builds(RealList, st.just(_HERE), st.lists(_items, max_size=2).map(tuple)),
    lambda inner: st.builds(
        RealList,
        st.just(_HERE),
        st.lists(_items | inner, min_size=1, max_size=3).map(tuple),
        st.none() | _items | inner,
    ),
    max_leaves=3,
)
_triples = (
    st.builds(TriplePattern, st.just(_HERE), _patterns, _patterns, _items | _lists)
    | st.builds(
        TriplePattern, st.just(_HERE), _patterns, _patterns, _variables,
        _patterns | st.sampled_from(["en", "fr"]).map(lambda word: RealLiteral(_HERE, "symbol", word)),
    )
    | st.builds(TriplePattern, st.just(_HERE), _patterns, _patterns, _texts, _variables)
)  # fmt: skip
_basic = st.builds(
    lambda kind, triple: kind(_HERE, triple),
    st.sampled_from([ReadExpr, TakeExpr, AddExpr, EnsureExpr]),
    _triples,
)
_arguments = st.lists(_items, max_size=3).map(tuple)
_leaves = (
    _basic
    | st.builds(TruthExpr, st.just(_HERE), st.booleans())
    | st.builds(InferExpr, st.just(_HERE), st.none() | _names, _triples)
    | st.builds(FreshExpr, st.just(_HERE), _variables)
    | st.builds(CallExpr, st.just(_HERE), _patterns, _arguments, _arguments)
    | st.builds(SpawnExpr, st.just(_HERE), _patterns, _arguments, st.lists(_variables, max_size=1).map(tuple))
    | st.builds(ExpandExpr, st.just(_HERE), _patterns, _arguments)
    | st.builds(StopExpr, st.just(_HERE), _patterns, st.none() | _items)
    | st.builds(WaitExpr, st.just(_HERE), _basic, st.none() | st.sampled_from([Decimal("0.1"), Decimal(5)]))
)


def _compound(inner: st.SearchStrategy[Expression]) -> st.SearchStrategy[Expression]:
    parts = st.lists(inner, min_size=2, max_size=3).map(tuple)
    return (
        st.builds(lambda kind, found: kind(_HERE, found), st.sampled_from([AndExpr, OrExpr, UnionExpr]), parts)
        | st.builds(
            lambda kind, part: kind(_HERE, part),
            st.sampled_from([NoExpr, FirstExpr, LastExpr, TransactionExpr, SandboxExpr]),
            inner,
        )
        | st.builds(RepeatExpr, st.just(_HERE), inner, st.none() | _numbers | _variables)
        | st.builds(ContextExpr, st.just(_HERE), _patterns, inner, st.booleans())
    )


def real_expressions() -> st.SearchStrategy[Expression]:
    """Return random expressions of every kind, as the parser returns them."""
    return st.recursive(_leaves, _compound, max_leaves=8)
