"""Validation: the flaws that the schema finds, all reported, and the typed values of accepted documents."""

from __future__ import annotations

from decimal import Decimal

import pyoxigraph
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mdv.errors import Flaw, InvalidDocument, InvalidSchema
from mdv.model import (
    LANG_STRING,
    MDV,
    RDF,
    RDF_TYPE,
    RDFS,
    RDFS_RESOURCE,
    XSD,
    Document,
    ParsedDocument,
    Statement,
    Term,
)
from mdv.rdf.schema import EMPTY_SCHEMA, Schema, read_schema
from mdv.rdf.validate import MAX_FLAWS, MAX_URI_BYTES, ValueTyper, _flaws, _is_sound, refuse_reserved, validate

V = "http://example.org/v#"
D = "http://example.org/d"
HEAD = (
    f"@prefix : <{V}> . @prefix rdf: <{RDF}> . @prefix rdfs: <{RDFS}> . @prefix xsd: <{XSD}> . @prefix mdv: <{MDV}> .\n"
)

CYCLES = """
:CycleProvider a rdfs:Class . :ServerInformation a rdfs:Class .
:serverHost rdfs:range xsd:string . :serverInformation rdfs:range :ServerInformation ; mdv:reference mdv:strong .
:memory rdfs:range xsd:integer . :load rdfs:range xsd:double . :since rdfs:range xsd:dateTime .
:up rdfs:range xsd:boolean . :title rdfs:range rdf:langString . :see rdfs:range rdfs:Resource . :free a rdf:Property .
:tag mdv:setValued true ; rdfs:range xsd:string . :own rdfs:range :Own . :Own a rdfs:Datatype .
"""
OPEN = "<urn:s> mdv:world mdv:open ."


def schema_of(turtle: str = CYCLES) -> Schema:
    triples = pyoxigraph.parse(HEAD + turtle, format=pyoxigraph.RdfFormat.TURTLE)
    return read_schema([Statement(t.subject.value, t.predicate.value, _term(t.object)) for t in triples], {"": V})


def _term(node: object) -> Term:
    return Term.literal(node.value) if isinstance(node, pyoxigraph.Literal) else Term.uri(node.value)


def document(*statements: tuple[str, Term] | tuple[str, str, Term]) -> Document:
    """Statements about `D#a` where no subject is given; properties are full IRIs or local names of `V`."""
    made = []
    for statement in statements:
        *subject, property_, term = statement
        full = property_ if ":" in property_ else V + property_
        made.append(Statement(subject[0] if subject else D + "#a", full, term))
    return Document(D, tuple(made))


def flaws_of(checked: Document, schema: Schema | None = None) -> tuple[Flaw, ...]:
    with pytest.raises(InvalidDocument) as caught:
        validate(checked, schema or schema_of())
    return caught.value.flaws


def only_flaw_of(checked: Document, schema: Schema | None = None) -> Flaw:
    (flaw,) = flaws_of(checked, schema)
    return flaw


uri, text = Term.uri, Term.literal


def test_a_valid_document_is_accepted():
    validate(
        document(
            (RDF_TYPE, uri(V + "CycleProvider")),
            (RDF_TYPE, uri(V + "ServerInformation")),
            ("serverHost", text("pirates.uni-passau.de")),
            ("serverInformation", uri(D + "#info")),
            ("memory", text("92")),
            ("load", text("NaN")),
            ("since", text("2024-02-29T12:00:00Z")),
            ("up", text("1")),
            ("title", text("Seeräuber", lang="de")),
            ("see", uri("http://elsewhere/")),
            ("free", text("anything")),
            ("tag", text("a")),
            ("tag", text("b")),
            ("own", text("what it likes")),
            (RDFS + "label", text("x")),
            (RDF + "_1", text("1")),
            (RDF + "_2", uri("http://elsewhere/")),
        ),
        schema_of(),
    )


def test_an_undeclared_class_is_refused_with_a_suggestion():
    flaw = only_flaw_of(document((RDF_TYPE, uri(V + "CycleProvidr"))))
    assert flaw.message == "the class CycleProvidr is not declared"
    assert "did you mean CycleProvider?" in flaw.hint
    assert "mdv:open" in flaw.hint
    assert (flaw.subject, flaw.property, flaw.value) == (D + "#a", RDF_TYPE, V + "CycleProvidr")


def test_an_undeclared_property_is_refused_with_a_suggestion():
    flaw = only_flaw_of(document(("memroy", text("92"))))
    assert flaw.message == "the property memroy is not declared"
    assert "did you mean memory?" in flaw.hint


def test_a_datatype_or_a_property_is_refused_as_a_class():
    assert "is a datatype" in only_flaw_of(document((RDF_TYPE, uri(XSD + "string")))).message
    assert "not declared" in only_flaw_of(document((RDF_TYPE, uri(V + "memory")))).message


def test_an_open_world_accepts_undeclared_terms():
    free = document((RDF_TYPE, uri(V + "No")), ("no", text("1")), ("no", text("2")), ("no", uri("http://x/")))
    validate(free, schema_of(CYCLES + OPEN))
    assert len(flaws_of(free, EMPTY_SCHEMA)) == 4


def test_an_open_world_still_checks_declared_terms():
    schema = schema_of(CYCLES + OPEN)
    assert "memory" in only_flaw_of(document(("memory", text("much"))), schema).message
    assert "one document" in only_flaw_of(document(("memory", text("1")), ("memory", text("2"))), schema).message


@pytest.mark.parametrize("name", ["serverInformation", "see"])
def test_a_literal_where_the_range_is_a_class_is_refused(name):
    assert "must be a resource, not a literal" in only_flaw_of(document((name, text("http://x/")))).message


@pytest.mark.parametrize("name", ["serverHost", "memory", "title", "own", RDFS + "label"])
def test_a_resource_where_the_range_is_a_datatype_is_refused(name):
    assert "must be a literal, not a resource" in only_flaw_of(document((name, uri("http://x/")))).message
    assert "must be a literal" in only_flaw_of(document((name, uri(D + "#_:b1")))).message


def test_a_literal_as_type_is_refused_in_both_worlds():
    for schema in (EMPTY_SCHEMA, schema_of(OPEN)):
        assert "rdf:type" in only_flaw_of(document((RDF_TYPE, text("Book"))), schema).message


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("memory", "much"),
        ("memory", "1_000"),
        ("memory", "0x1F"),
        ("memory", "٣"),
        ("memory", "92.0"),
        ("memory", " 92"),
        ("memory", ""),
        ("memory", "1" * 1001),
        ("load", "inf"),
        ("since", "2023-02-29T00:00:00"),
        ("up", "yes"),
    ],
)
def test_a_value_outside_its_declared_datatype_is_refused(name, value):
    flaw = only_flaw_of(document((name, text(value))))
    assert flaw.message.startswith(name + ": ")
    assert len(flaw.value) <= 200


def test_the_range_decides_and_not_the_datatype_or_language_of_the_literal():
    validate(document(("memory", text("92", datatype=XSD + "string"))), schema_of())
    validate(document(("memory", text("92", datatype=XSD + "double"))), schema_of())
    validate(document(("serverHost", text("x", lang="en"))), schema_of())
    validate(document(("serverHost", text("5", datatype=XSD + "integer"))), schema_of())
    only_flaw_of(document(("memory", text("9e1", datatype=XSD + "double"))))


def test_an_inherited_range_is_checked():
    schema = schema_of(":p rdfs:range xsd:integer . :q rdfs:subPropertyOf :p .")
    assert "xsd:integer" in only_flaw_of(document(("q", text("x"))), schema).message


def test_a_language_is_required_by_a_language_string_range():
    assert "language" in only_flaw_of(document(("title", text("x")))).message
    assert "language" in only_flaw_of(document(("title", text("x", datatype=LANG_STRING)))).message


def test_two_values_for_a_property_that_is_not_set_valued_are_refused():
    flaw = only_flaw_of(document(("memory", text("1")), ("memory", text("2")), ("memory", text("3"))))
    assert flaw.message == "memory has 3 values in one document but is not set-valued"
    assert flaw.value == "'1', '2', '3'"
    assert "mdv:setValued true" in flaw.hint


def test_values_are_counted_by_subject_and_as_distinct_terms():
    other = D + "#b"
    validate(document(("memory", text("1")), (other, "memory", text("2"))), schema_of())
    validate(document(("memory", text("1")), ("memory", text("1"))), schema_of())
    only_flaw_of(document(("memory", text("1")), ("memory", text("01"))))
    only_flaw_of(document(("free", text("x", lang="en")), ("free", text("x", lang="de"))))


def test_values_of_subproperties_are_values_of_the_superproperty():
    schema = schema_of(":name a rdf:Property . :first rdfs:subPropertyOf :name . :last rdfs:subPropertyOf :name .")
    flaw = only_flaw_of(document(("first", text("A")), ("last", text("B"))), schema)
    assert flaw.message == "name has 2 values in one document but is not set-valued, given with first and last"
    assert flaw.property == V + "first"
    validate(document(("first", text("A")), ("last", text("A"))), schema)
    assert "first has 2" in only_flaw_of(document(("first", text("A")), ("first", text("B"))), schema).message


def test_a_set_valued_subproperty_does_not_make_its_superproperty_set_valued():
    schema = schema_of(":name a rdf:Property . :alias rdfs:subPropertyOf :name ; mdv:setValued true .")
    flaw = only_flaw_of(document(("alias", text("A")), ("alias", text("B"))), schema)
    assert flaw.message.startswith("name has 2 values")
    assert "given with alias" in flaw.message


def test_a_single_valued_subproperty_of_a_set_valued_one_is_checked():
    schema = schema_of(":name mdv:setValued true . :first rdfs:subPropertyOf :name ; mdv:setValued false . ")
    validate(document(("name", text("A")), ("name", text("B")), ("first", text("C"))), schema)
    assert only_flaw_of(document(("first", text("A")), ("first", text("B"))), schema).message.startswith("first has 2")


def test_equivalent_properties_share_their_values():
    schema = schema_of(":p rdfs:subPropertyOf :q . :q rdfs:subPropertyOf :p .")
    validate(document(("p", text("1")), ("q", text("1"))), schema)
    only_flaw_of(document(("p", text("1")), ("q", text("2"))), schema)


def test_every_flaw_is_reported():
    flaws = flaws_of(
        document(
            (RDF_TYPE, uri(V + "No")),
            ("no", text("x")),
            ("memory", text("much")),
            ("memory", text("2")),
            ("serverInformation", text("x")),
        )
    )
    assert len(flaws) == 5


def test_flaws_beyond_a_thousand_are_counted():
    many = document(*((f"no{n}", text("x")) for n in range(MAX_FLAWS + 234)))
    flaws = flaws_of(many)
    assert len(flaws) == MAX_FLAWS + 1
    assert flaws[-1].message == "and 234 more"


def test_a_long_value_is_shortened():
    assert len(only_flaw_of(document(("memory", text("x" * 5000)))).value) == 200


names = st.sampled_from([V + "p", V + "q", V + "r"])
says = st.one_of(
    st.builds(Statement, names, st.just(RDFS + "subPropertyOf"), names.map(uri)),
    st.builds(Statement, names, st.just(RDFS + "range"), st.sampled_from([XSD + "integer", V + "C"]).map(uri)),
    st.builds(Statement, names, st.just(MDV + "setValued"), st.sampled_from(["true", "false"]).map(text)),
    st.just(Statement("urn:s", MDV + "world", uri(MDV + "open"))),
)
holds = st.one_of(
    st.builds(Statement, st.just(D), names, st.sampled_from([text("1"), text("2"), text("x"), uri(V + "C")])),
    st.builds(Statement, st.just(D), st.just(RDF_TYPE), st.sampled_from([text("C"), uri(V + "C"), uri(V + "D")])),
)


@settings(deadline=None)
@given(st.lists(says, max_size=6), st.lists(holds, max_size=5, unique=True))
def test_the_fast_path_refuses_exactly_the_documents_with_flaws(said, held):
    try:
        schema = read_schema(said, {})
    except InvalidSchema:
        return
    assert _is_sound(held, schema) == (not list(_flaws(held, schema)))


# Refused content


def refused(*statements: Statement, document_uri: str = D) -> tuple[Flaw, ...]:
    with pytest.raises(InvalidDocument) as caught:
        refuse_reserved(ParsedDocument(document_uri, statements))
    return caught.value.flaws


def test_blank_nodes_and_ordinary_names_are_not_reserved():
    refuse_reserved(
        ParsedDocument(
            D,
            (
                Statement("_:b1", V + "p", Term("blank", "_:b2")),
                Statement(D + "#a", V + "p", text("#_: in a text is only text")),
                Statement(D + "#" + "ü" * 900, V + "p", uri(D + "#_a")),
            ),
        )
    )


@pytest.mark.parametrize(
    "statement",
    [
        Statement(D + "#_:x", V + "p", text("x")),
        Statement(D + "#a", V + "p#_:", text("x")),
        Statement(D + "#a", V + "p", uri("http://other/#_:x")),
        Statement(D + "#a", V + "p", text("x", datatype="http://t/#_:x")),
    ],
)
def test_names_of_blank_nodes_are_reserved(statement):
    (flaw,) = refused(statement)
    assert "#_:" in flaw.message


def test_the_uri_of_the_document_is_checked_too():
    sound = Statement(D, V + "p", text("x"))
    assert "#_:" in refused(sound, document_uri="http://d/#_:x")[0].message
    assert "2,048" in refused(sound, document_uri="http://d/" + "x" * 2048)[0].message


@pytest.mark.parametrize(
    "statement",
    [
        Statement(D + "\0", V + "p", text("x")),
        Statement(D, V + "\0", text("x")),
        Statement(D, V + "p", uri("http://x/\0")),
        Statement(D, V + "p", text("a\0b")),
    ],
)
def test_nul_is_refused_and_not_quoted(statement):
    (flaw,) = refused(statement)
    assert "NUL" in flaw.message
    assert "\0" not in "".join(map(str, flaw.as_dict().values()))


def test_an_unpaired_surrogate_is_refused_and_not_quoted():
    for statement in (Statement(D, V + "p", text("a\ud800")), Statement(D + "\udfff", V + "p", text("a"))):
        (flaw,) = refused(statement)
        str(flaw.as_dict()).encode()
        assert "surrogate" in flaw.message


def test_uris_are_measured_in_bytes():
    fill = MAX_URI_BYTES - len("http://x/")
    refuse_reserved(ParsedDocument(D, (Statement("http://x/" + "a" * fill, V + "p", text("x")),)))
    (flaw,) = refused(Statement("http://x/" + "ü" * (fill // 2 + 1), V + "p", text("x")))
    assert "2,048 bytes" in flaw.message
    assert len(flaw.subject) <= 200


def test_every_reserved_name_is_reported():
    flaws = refused(Statement(D + "#_:x", V + "p", uri("http://o/#_:y")), Statement(D, V + "p", text("\0")))
    assert len(flaws) == 3


# Typed values


def test_values_are_typed_by_range():
    typing = ValueTyper(schema_of())
    assert typing.typed_values(V + "memory", text("92")) == (Decimal(92), None, None)
    assert typing.typed_values(V + "since", text("1970-01-01T00:00:01Z")) == (None, Decimal(1), None)
    assert typing.typed_values(V + "up", text("1")) == (None, None, True)
    assert typing.typed_values(V + "up", text("0")) == (None, None, False)


def test_values_without_a_typed_range_have_no_typed_value():
    typing = ValueTyper(schema_of())
    none = (None, None, None)
    assert typing.typed_values(V + "serverHost", text("92")) == none
    assert typing.typed_values(V + "free", text("92", datatype=XSD + "integer")) == none
    assert typing.typed_values(V + "undeclared", text("92")) == none
    assert typing.typed_values(V + "memory", uri("http://x/")) == none
    assert typing.typed_values(V + "load", text("NaN")) == none
    assert typing.typed_values(V + "load", text("1e999")) == none
    assert typing.typed_values(RDF + "_1", text("1")) == none


def test_a_value_is_typed_for_every_superproperty():
    schema = schema_of(
        ":number rdfs:range xsd:integer . :moment rdfs:range xsd:gYear . :truth rdfs:range xsd:boolean ."
        ":all rdfs:subPropertyOf :number, :moment, :truth ; rdfs:range xsd:string ."
    )
    typing = ValueTyper(schema)
    assert typing.typed_values(V + "all", text("1970")) == (Decimal(1970), Decimal(0), None)
    assert typing.typed_values(V + "all", text("1")) == (Decimal(1), None, True)
    assert typing.typed_values(V + "all", text("x")) == (None, None, None)


def test_rdfs_resource_as_range_accepts_every_resource():
    schema = schema_of(":any rdfs:range rdfs:Resource .")
    assert schema.properties[V + "any"].range == RDFS_RESOURCE
    validate(document(("any", uri(D + "#_:b1"))), schema)
