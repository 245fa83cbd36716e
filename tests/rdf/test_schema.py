"""The schema: declarations, inheritance, contradictions, and the resolution of names."""

from __future__ import annotations

import pickle

import pyoxigraph
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mdv.errors import InvalidSchema
from mdv.model import MDV, RDF, RDF_TYPE, RDFS, RDFS_RESOURCE, XSD, Statement, Term
from mdv.rdf.compare import Aspect, compare_schemas
from mdv.rdf.schema import EMPTY_SCHEMA, Schema, UnknownName, diff_schemas, read_schema
from mdv.rdf.values import ValueKind

V = "http://example.org/v#"
PREFIXES = {"": V, "v": V, "w": "http://example.org/w#", "rdf": RDF, "rdfs": RDFS, "xsd": XSD, "mdv": MDV}
HEAD = "".join(f"@prefix {prefix}: <{namespace}> .\n" for prefix, namespace in PREFIXES.items())
HEAD += "@prefix owl: <http://www.w3.org/2002/07/owl#> .\n"


def schema_of(turtle: str, prefixes: dict[str, str] = PREFIXES) -> Schema:
    statements = []
    for triple in pyoxigraph.parse(HEAD + turtle, format=pyoxigraph.RdfFormat.TURTLE, base_iri="urn:mdv:schema"):
        subject = (
            f"_:{triple.subject.value}" if isinstance(triple.subject, pyoxigraph.BlankNode) else triple.subject.value
        )
        object_ = triple.object
        if isinstance(object_, pyoxigraph.Literal):
            term = Term.literal(object_.value, object_.language, object_.datatype.value)
        elif isinstance(object_, pyoxigraph.BlankNode):
            term = Term("blank", f"_:{object_.value}")
        else:
            term = Term.uri(object_.value)
        statements.append(Statement(subject, triple.predicate.value, term))
    return read_schema(statements, prefixes)


def flaws_of(turtle: str) -> list[str]:
    with pytest.raises(InvalidSchema) as caught:
        schema_of(turtle)
    assert caught.value.status == 422
    return [str(flaw) for flaw in caught.value.flaws]


def only_flaw_of(turtle: str) -> str:
    flaws = flaws_of(turtle)
    assert len(flaws) == 1, flaws
    return flaws[0]


# Declarations of classes, properties and datatypes


@pytest.mark.parametrize(
    "turtle",
    [
        ":C a rdfs:Class .",
        ":C a owl:Class .",
        ":C rdfs:subClassOf :D .",
        ":B rdfs:subClassOf :C .",
        ":p rdfs:domain :C .",
        ":p rdfs:range :C .",
    ],
)
def test_every_declaration_of_a_class_is_recognised(turtle):
    assert V + "C" in schema_of(turtle).classes


@pytest.mark.parametrize(
    "turtle",
    [
        ":p a rdf:Property .",
        ":p a owl:ObjectProperty .",
        ":p a owl:DatatypeProperty .",
        ":p a owl:AnnotationProperty .",
        ":p rdfs:domain :C .",
        ":p rdfs:range xsd:string .",
        ":p rdfs:subPropertyOf :q .",
        ":o rdfs:subPropertyOf :p .",
        ":p mdv:reference mdv:weak .",
        ":p mdv:setValued false .",
        ":p rdfs:range [ a owl:Class ] .",
    ],
)
def test_every_declaration_of_a_property_is_recognised(turtle):
    schema = schema_of(turtle)
    assert V + "p" in schema.properties
    assert V + "p" not in schema.classes


def test_a_declared_datatype_is_text_and_no_class():
    schema = schema_of(":Isbn a rdfs:Datatype ; rdfs:subClassOf rdfs:Literal . :isbn rdfs:range :Isbn .")
    assert schema.datatypes == {V + "Isbn"}
    assert schema.is_datatype(V + "Isbn")
    assert V + "Isbn" not in schema.classes
    assert schema.properties[V + "isbn"].kind is ValueKind.TEXT


def test_a_subclass_of_a_datatype_is_a_datatype():
    schema = schema_of(":Short rdfs:subClassOf :Text . :Text rdfs:subClassOf xsd:string .")
    assert schema.datatypes == {V + "Short", V + "Text"}


def test_a_datatype_as_range_is_no_class():
    schema = schema_of(":p rdfs:range xsd:integer . :q rdfs:range rdfs:Literal .")
    assert schema.classes.keys() == EMPTY_SCHEMA.classes.keys()


def test_statements_about_blank_nodes_are_ignored():
    schema = schema_of(":C rdfs:subClassOf [ a owl:Restriction ] . [] a rdfs:Class . [] rdfs:domain :X . :D a :C .")
    assert schema.classes.keys() == EMPTY_SCHEMA.classes.keys()


def test_statements_of_other_vocabularies_are_ignored():
    schema = schema_of("<> a owl:Ontology ; rdfs:comment 'mine' . :p owl:inverseOf :q .")
    assert schema.properties == EMPTY_SCHEMA.properties


def test_defaults_are_weak_single_and_closed():
    schema = schema_of(":p a rdf:Property .")
    found = schema.properties[V + "p"]
    assert (found.range, found.kind, found.strong, found.set_valued) == (None, ValueKind.TEXT, False, False)
    assert not schema.open


def test_mdv_terms_are_read():
    schema = schema_of(":p mdv:reference mdv:strong ; mdv:setValued true . <> mdv:world mdv:open .")
    assert schema.properties[V + "p"].strong
    assert schema.properties[V + "p"].set_valued
    assert schema.open


@pytest.mark.parametrize(("value", "expected"), [("true", 1), ("1", 1), ("'true'", 1), ("'0'", 0), ("false", 0)])
def test_set_valued_accepts_every_form_of_a_boolean(value, expected):
    assert schema_of(f":p mdv:setValued {value} .").properties[V + "p"].set_valued is bool(expected)


def test_the_world_may_be_declared_on_any_subject():
    assert schema_of(":anything mdv:world mdv:open . <> mdv:world mdv:open .").open
    assert schema_of("[] mdv:world mdv:open .").open
    assert not schema_of("<> mdv:world mdv:closed .").open


# Built-in terms


def test_rdf_and_rdfs_terms_are_built_in():
    classes = ["List", "Bag", "Seq", "Alt", "Statement", "Property"]
    assert {RDF + name for name in classes} | {RDFS + "Resource", RDFS + "Class"} <= EMPTY_SCHEMA.classes.keys()
    names = [RDF + name for name in ("type", "value", "first", "rest", "_1", "_23", "subject", "predicate", "object")]
    names += [RDFS + name for name in ("label", "comment", "seeAlso", "isDefinedBy", "member", "subClassOf")]
    assert all(EMPTY_SCHEMA.property_of(name) for name in names)
    assert [name for name in names if EMPTY_SCHEMA.property_of(name).set_valued] == [RDF_TYPE]
    assert not any(EMPTY_SCHEMA.property_of(RDF + name) for name in ("_0", "_", "_01", "_1a", "li", "nothing"))
    assert not EMPTY_SCHEMA.open


def test_a_schema_may_extend_built_in_terms():
    schema = schema_of("rdf:value mdv:setValued true . rdfs:label rdfs:range xsd:string . rdf:_1 mdv:setValued true .")
    assert schema.properties[RDF + "value"].set_valued
    assert schema.properties[RDFS + "label"].range == XSD + "string"
    assert schema.property_of(RDF + "_1").set_valued
    assert not schema.property_of(RDF + "_2").set_valued


def test_rdfs_resource_is_a_superclass_of_every_class():
    schema = schema_of(":C rdfs:subClassOf :D .")
    assert all(RDFS_RESOURCE in found.superclasses for found in schema.classes.values())
    assert set(schema.classes[RDFS_RESOURCE].subclasses) == schema.classes.keys()
    assert schema.classes[V + "C"].superclasses == (V + "C", V + "D", RDFS_RESOURCE)


# Inheritance


def test_closures_contain_self_and_everything_above_and_below():
    schema = schema_of(":a rdfs:subPropertyOf :b . :b rdfs:subPropertyOf :c . :x rdfs:subPropertyOf :c .")
    assert schema.properties[V + "a"].superproperties == (V + "a", V + "b", V + "c")
    assert schema.properties[V + "c"].subproperties[0] == V + "c"
    assert set(schema.properties[V + "c"].subproperties) == {V + n for n in "cabx"}


def test_a_subproperty_inherits_range_strong_and_set_valued():
    schema = schema_of(
        ":top rdfs:range :C ; mdv:reference mdv:strong ; mdv:setValued true ."
        ":mid rdfs:subPropertyOf :top . :low rdfs:subPropertyOf :mid ."
    )
    low = schema.properties[V + "low"]
    assert (low.range, low.strong, low.set_valued) == (V + "C", True, True)


def test_a_subproperty_may_override_and_the_nearest_declaration_counts():
    schema = schema_of(
        ":top rdfs:range xsd:decimal ; mdv:setValued true . :mid rdfs:subPropertyOf :top ; rdfs:range xsd:integer ."
        ":low rdfs:subPropertyOf :mid ; mdv:setValued false ."
    )
    assert schema.properties[V + "low"].range == XSD + "integer"
    assert schema.properties[V + "mid"].set_valued
    assert not schema.properties[V + "low"].set_valued


def test_an_undeclared_setting_of_one_superproperty_does_not_hide_that_of_another():
    schema = schema_of(":p rdfs:subPropertyOf :silent , :says . :says mdv:setValued true .")
    assert schema.properties[V + "p"].set_valued


def test_domains_are_kept_and_not_inherited():
    schema = schema_of(":p rdfs:domain :A, :B . :q rdfs:subPropertyOf :p .")
    assert set(schema.properties[V + "p"].domains) == {V + "A", V + "B"}
    assert schema.properties[V + "q"].domains == ()


def test_cycles_mean_equivalence():
    schema = schema_of(
        ":A rdfs:subClassOf :B . :B rdfs:subClassOf :C . :C rdfs:subClassOf :A . :Z rdfs:subClassOf :A ."
        ":p rdfs:subPropertyOf :q . :q rdfs:subPropertyOf :p ; rdfs:range xsd:integer . :r rdfs:subPropertyOf :r ."
    )
    for name in "ABC":
        assert {V + n for n in "ABC"} <= set(schema.classes[V + name].superclasses)
        assert {V + n for n in "ABCZ"} == set(schema.classes[V + name].subclasses)
    assert schema.properties[V + "p"].range == schema.properties[V + "q"].range == XSD + "integer"
    assert schema.properties[V + "r"].superproperties == (V + "r",)


def test_equivalent_superproperties_are_equally_near():
    turtle = (
        ":p rdfs:subPropertyOf :a . :a rdfs:subPropertyOf :b . :b rdfs:subPropertyOf :a ; rdfs:range xsd:integer ."
        ":b rdfs:subPropertyOf :c . :c rdfs:range xsd:string ."
    )
    assert schema_of(turtle).properties[V + "p"].range == XSD + "integer"


def test_a_long_chain_needs_no_recursion():
    chain = "".join(f":c{n} rdfs:subClassOf :c{n + 1} . :p{n} rdfs:subPropertyOf :p{n + 1} ." for n in range(300))
    schema = schema_of(chain + ":p300 rdfs:range xsd:integer .")
    assert len(schema.classes[V + "c0"].superclasses) == 302
    assert schema.properties[V + "p0"].kind is ValueKind.NUMBER


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=14))
def test_closures_are_reflexive_transitive_and_inverse(edges):
    uri = "http://c/{}".format
    statements = [Statement(uri(a), RDFS + "subClassOf", Term.uri(uri(b))) for a, b in edges]
    classes = read_schema(statements, {}).classes
    assert all(uri(b) in classes[uri(a)].superclasses for a, b in edges)
    for iri, found in classes.items():
        assert found.superclasses[0] == found.subclasses[0] == iri
        assert len(set(found.superclasses)) == len(found.superclasses)
        for above in found.superclasses:
            assert set(classes[above].superclasses) <= set(found.superclasses)
            assert iri in classes[above].subclasses


# Contradictions


def test_several_ranges_are_refused_and_equal_ones_are_not():
    flaw = only_flaw_of(":p rdfs:range xsd:integer, xsd:string .")
    assert "xsd:integer" in flaw
    assert "xsd:string" in flaw
    schema_of(":p rdfs:range xsd:integer, <http://www.w3.org/2001/XMLSchema#integer> .")


def test_two_inherited_ranges_at_equal_distance_are_refused_naming_both():
    turtle = ":p rdfs:subPropertyOf :a, :b . :a rdfs:range :A . :b rdfs:range :B ."
    flaw = only_flaw_of(turtle)
    assert flaw.startswith("p inherits two ranges: A (of a) and B (of b)")
    assert schema_of(turtle + ":p rdfs:range :C .").properties[V + "p"].range == V + "C"


def test_inherited_settings_that_contradict_are_refused():
    two = ":p rdfs:subPropertyOf :a, :b . :a {0} . :b {1} ."
    assert "strong" in only_flaw_of(two.format("mdv:reference mdv:strong", "mdv:reference mdv:weak"))
    assert "mdv:setValued" in only_flaw_of(two.format("mdv:setValued true", "mdv:setValued false"))


def test_settings_that_contradict_in_a_cycle_are_refused_once():
    turtle = ":p rdfs:subPropertyOf :q . :q rdfs:subPropertyOf :p . :p {0} . :q {1} ."
    assert "subproperties of each other" in only_flaw_of(turtle.format("rdfs:range :A", "rdfs:range :B"))
    only_flaw_of(turtle.format("mdv:setValued true", "mdv:setValued false"))


def test_a_contradictory_property_is_refused():
    only_flaw_of(":p mdv:reference mdv:strong, mdv:weak .")
    only_flaw_of(":p mdv:setValued true, false .")
    schema_of(":p mdv:setValued true, 1 .")


def test_a_strong_reference_to_a_datatype_is_refused():
    assert "datatype" in only_flaw_of(":p mdv:reference mdv:strong ; rdfs:range xsd:string .")
    assert "datatype" in only_flaw_of(":p mdv:reference mdv:strong ; rdfs:range :D . :D a rdfs:Datatype .")
    inherited = ":p rdfs:subPropertyOf :q ; rdfs:range xsd:string . :q mdv:reference mdv:strong ."
    assert "datatype" in only_flaw_of(inherited)
    schema_of(inherited + ":p mdv:reference mdv:weak .")


def test_a_world_both_open_and_closed_is_refused():
    assert "world" in only_flaw_of("<> mdv:world mdv:open . :x mdv:world mdv:closed .")


@pytest.mark.parametrize(
    "turtle",
    [
        ":p mdv:reference mdv:open .",
        ":p mdv:reference 'strong' .",
        ":p mdv:reference mdv:stron .",
        ":p mdv:setValued 'yes' .",
        ":p mdv:setValued mdv:strong .",
        ":p mdv:setValued [] .",
        "<> mdv:world mdv:weak .",
        "<> mdv:world true .",
    ],
)
def test_invalid_values_of_mdv_terms_are_refused(turtle):
    assert "must be" in only_flaw_of(turtle)


def test_unknown_mdv_terms_are_refused_with_a_suggestion():
    assert "did you mean mdv:setValued?" in only_flaw_of(":p mdv:setvalued true .")
    assert "did you mean mdv:strong?" in only_flaw_of(":p mdv:reference mdv:Strong .")
    assert "there is no property mdv:strong" in only_flaw_of(":p mdv:strong true .")


def test_relative_names_belong_to_the_author_even_if_they_look_like_mdv_terms():
    schema = schema_of(
        "<#Host> a rdfs:Class . <#memory> rdfs:range xsd:integer . <#note> a rdf:Property . :p <#note> 1 ."
    )
    assert MDV + "Host" in schema.classes
    assert schema.resolve_property("memory") == MDV + "memory"
    assert "belongs to MDV" in only_flaw_of("mdv:strong a rdfs:Class .")
    assert "belongs to MDV" in only_flaw_of("<#world> a rdf:Property .")


def test_a_name_with_two_roles_is_refused():
    assert "both a class and a property" in only_flaw_of(":x a rdfs:Class, rdf:Property .")
    assert "both a class and a property" in only_flaw_of(":p rdfs:domain :x . :x rdfs:range xsd:string .")
    assert "both a class and a property" in only_flaw_of("rdf:type a rdfs:Class .")
    assert "both a class and a property" in only_flaw_of("rdf:List a rdf:Property .")
    assert "both a class and a datatype" in only_flaw_of(":x a rdfs:Class, rdfs:Datatype .")
    assert "both a class and a datatype" in only_flaw_of(":p rdfs:domain xsd:string .")
    assert "both a datatype and a property" in only_flaw_of(":x a rdfs:Datatype, rdf:Property .")


def test_a_subproperty_of_type_is_refused():
    assert "rdf:type" in only_flaw_of(":kind rdfs:subPropertyOf rdf:type .")


def test_literals_are_refused_where_rdfs_needs_uris():
    for name in ("subClassOf", "subPropertyOf", "domain", "range"):
        assert "needs a URI" in only_flaw_of(f":x rdfs:{name} 'y' .")


def test_all_flaws_are_reported_together():
    flaws = flaws_of(
        ":p rdfs:range :A, :B ; mdv:setValued 'yes' . :x a rdfs:Class, rdf:Property ."
        "<> mdv:world mdv:open, mdv:closed ."
        ":s mdv:reference mdv:strong ; rdfs:range xsd:date . :q mdv:refers mdv:strong ."
    )
    assert len(flaws) == 6


def test_rdfs_itself_is_a_schema():
    schema_of(
        "rdfs:Resource a rdfs:Class . rdfs:Literal a rdfs:Class ; rdfs:subClassOf rdfs:Resource ."
        "rdf:XMLLiteral a rdfs:Datatype ; rdfs:subClassOf rdfs:Literal . rdfs:Class rdfs:subClassOf rdfs:Resource ."
        "rdf:type a rdf:Property ; rdfs:range rdfs:Class ; rdfs:domain rdfs:Resource ."
        "rdfs:isDefinedBy rdfs:subPropertyOf rdfs:seeAlso ."
    )


# Names

NAMES = """
:Work a rdfs:Class . :Book rdfs:subClassOf :Work . :Film rdfs:subClassOf :Work . :Agent a rdfs:Class .
w:Agent a rdfs:Class . w:Tree a rdfs:Class .
:title rdfs:domain :Work . w:title rdfs:domain :Book . :name rdfs:domain :Agent . w:name rdfs:domain w:Agent .
w:label a rdf:Property . w:height rdfs:domain w:Tree . <http://other.org/name> a rdf:Property .
<http://other.org/x/size> a rdf:Property . w:size a rdf:Property . <urn:u:odd> a rdf:Property .
"""
W = PREFIXES["w"]


@pytest.mark.parametrize(
    ("name", "iri"),
    [
        ("v:Book", V + "Book"),
        (":Book", V + "Book"),
        ("Book", V + "Book"),
        (f"<{V}Book>", V + "Book"),
        (V + "Book", V + "Book"),
        ("w:Agent", W + "Agent"),
        ("Tree", W + "Tree"),
        ("Agent", V + "Agent"),  # the default namespace wins
        ("rdfs:Resource", RDFS_RESOURCE),
        ("Resource", RDFS_RESOURCE),
    ],
)
def test_names_of_classes_are_resolved(name, iri):
    assert schema_of(NAMES).resolve_class(name) == iri


@pytest.mark.parametrize(
    ("name", "class_", "iri"),
    [
        ("title", "Book", W + "title"),  # the class's own before the superclass's
        ("title", "Film", V + "title"),
        ("title", None, V + "title"),
        ("v:title", "Book", V + "title"),
        ("height", None, W + "height"),
        ("height", "Book", W + "height"),
        ("label", None, W + "label"),  # terms that the schema adds come before built-in ones
        ("odd", None, "urn:u:odd"),
        ("rdf:_3", None, RDF + "_3"),
        ("comment", "Book", RDFS + "comment"),
    ],
)
def test_names_of_properties_are_resolved(name, class_, iri):
    schema = schema_of(NAMES)
    assert schema.resolve_property(name, class_ and V + class_) == iri


def test_a_property_of_the_class_takes_precedence_over_the_default_namespace():
    assert schema_of(NAMES).resolve_property("name", W + "Agent") == W + "name"


def test_unknown_names_are_reported_with_suggestions():
    schema = schema_of(NAMES)
    with pytest.raises(UnknownName, match=r"unknown class 'Bok'; did you mean Book\?") as caught:
        schema.resolve_class("Bok")
    assert caught.value.nearest == ("Book",)
    with pytest.raises(UnknownName, match=r"did you mean w:height\?"):
        schema.resolve_property("w:hieght")
    with pytest.raises(UnknownName, match=r"did you mean height\?"):
        schema.resolve_property("HEIGHT")
    for name in ("w:Book", "no:Book", "<Book>", "", "http://nowhere/Book"):
        with pytest.raises(UnknownName):
            schema.resolve_class(name)
    with pytest.raises(UnknownName):
        schema.resolve_class("title")


def test_ambiguous_names_are_reported_with_the_choices():
    with pytest.raises(UnknownName) as caught:
        schema_of(NAMES).resolve_property("size")
    assert set(caught.value.ambiguous) == {"w:size", "<http://other.org/x/size>"}
    diamond = "v:A rdfs:subClassOf w:B, w:C . v:p rdfs:domain w:B . w:p rdfs:domain w:C ."
    with pytest.raises(UnknownName) as caught:
        schema_of(diamond, {"v": V, "w": W}).resolve_property("p", V + "A")
    assert set(caught.value.ambiguous) == {"v:p", "w:p"}


def test_an_unknown_name_survives_pickling():
    error = pickle.loads(pickle.dumps(UnknownName("x", ("y",), (), "property")))
    assert str(error) == "unknown property 'x'; did you mean y?"


def test_prefixes_are_those_of_the_file_and_the_built_in_ones():
    assert EMPTY_SCHEMA.prefixes == {"rdf": RDF, "rdfs": RDFS, "xsd": XSD, "mdv": MDV}
    assert schema_of("", {"rdf": "http://other/"}).prefixes["rdf"] == "http://other/"


def test_names_are_shortened_by_prefixes():
    schema = schema_of(NAMES)
    assert schema.shorten(W + "Tree") == "w:Tree"
    assert schema.shorten(V + "Book") == "Book"
    assert schema.shorten(V + "not/simple") == f"<{V}not/simple>"
    assert schema.shorten(V) == f"<{V}>"
    assert schema.shorten("http://x/y") == "<http://x/y>"


@pytest.mark.parametrize("iri", sorted(schema_of(NAMES).classes))
def test_short_names_resolve_to_their_iris(iri):
    schema = schema_of(NAMES)
    assert schema.resolve_class(schema.shorten(iri)) == iri


# Equality and differences


def test_schemas_are_compared_by_value():
    one, other = schema_of(NAMES), schema_of(NAMES)
    assert one == other
    assert hash(one) == hash(other)
    assert not diff_schemas(one, other)
    assert pickle.loads(pickle.dumps(one)) == one


def test_differences_list_additions():
    old = schema_of(":A a rdfs:Class . :B a rdfs:Class . :p rdfs:range :A .")
    new = schema_of(
        ":A a rdfs:Class . :B rdfs:subClassOf :A . :C a rdfs:Class . :q a rdf:Property . <> mdv:world mdv:open ."
        ":p rdfs:range :A ; mdv:reference mdv:strong ; mdv:setValued true ; rdfs:subPropertyOf :q ."
    )
    found = diff_schemas(old, new)
    assert found.added_classes == {V + "C"}
    assert found.changed_classes == {V + "B"}
    assert found.removed_classes == frozenset()
    assert found.added_properties == {V + "q"}
    assert found.opened
    assert not found.closed
    (change,) = found.changed_properties
    assert change.new.iri == V + "p"
    assert change.aspects == {"strong", "set_valued", "superproperties"}


def test_differences_list_removals():
    old = schema_of("<> mdv:world mdv:open . :A a rdfs:Class . :p rdfs:range xsd:string . :q rdfs:range xsd:date .")
    found = diff_schemas(old, schema_of(":p rdfs:range xsd:integer ."))
    assert found.removed_classes == {V + "A"}
    assert found.removed_properties == {V + "q"}
    assert found.closed
    assert found.changed_properties[0].aspects == {"range", "kind"}
    assert bool(found)


def test_a_change_inherited_from_a_superproperty_counts():
    base = ":p rdfs:subPropertyOf :q ."
    found = diff_schemas(schema_of(base), schema_of(base + ":q rdfs:range xsd:integer ."))
    assert {change.new.iri for change in found.changed_properties} == {V + "p", V + "q"}


def test_a_hierarchy_that_is_too_deep_is_refused() -> None:
    chain = [Statement(f"http://e/C{n}", RDFS + "subClassOf", Term.uri(f"http://e/C{n + 1}")) for n in range(3_000)]
    with pytest.raises(InvalidSchema, match="too deep"):
        read_schema(chain, {})


# Members of container classes

CONTAINERS = ":Parts rdfs:subClassOf rdf:Seq . :Part a rdfs:Class . "


def test_the_members_of_a_container_class_are_declared() -> None:
    schema = schema_of(
        CONTAINERS + ":Parts mdv:members :Part . :Names rdfs:subClassOf rdf:Bag ; mdv:members xsd:string ."
    )
    assert schema.members == {V + "Parts": V + "Part", V + "Names": XSD + "string"}
    assert EMPTY_SCHEMA.members == {}


@pytest.mark.parametrize(
    ("turtle", "flaw"),
    [
        (":Part mdv:members :Part .", "mdv:members is declared on Part, which is not a subclass of a container"),
        ("rdf:Seq mdv:members :Part .", "mdv:members is declared on rdf:Seq, which is not a subclass of a container"),
        (":Parts mdv:members 'Part' .", "mdv:members must be a class or datatype"),
        (":Parts mdv:members :Prat .", "the members of Parts: there is no class Prat"),
        (":Parts mdv:members :Part, xsd:string .", "Parts has members of several classes: Part and xsd:string"),
    ],
)
def test_wrong_members_are_flaws(turtle: str, flaw: str) -> None:
    assert only_flaw_of(CONTAINERS + turtle).startswith(flaw)


def test_a_change_of_members_is_a_change_of_the_class() -> None:
    old, new = schema_of(CONTAINERS), schema_of(CONTAINERS + ":Parts mdv:members :Part .")
    assert diff_schemas(old, new).changed_classes == {V + "Parts"}
    [change] = compare_schemas(old, new).changes
    assert (change.change, change.aspects) == ("changed", (Aspect("members", (), ("Part",)),))


# Labels

DEFAULT_ORDER = (
    RDFS + "label",
    "http://www.w3.org/2004/02/skos/core#prefLabel",
    "http://purl.org/dc/terms/title",
    "http://xmlns.com/foaf/0.1/name",
    "http://schema.org/name",
    "https://schema.org/name",
)


def test_without_marks_the_well_known_label_properties_count_in_order() -> None:
    assert EMPTY_SCHEMA.label_properties == DEFAULT_ORDER
    assert schema_of(":p a rdf:Property .").label_properties == DEFAULT_ORDER


def test_marked_properties_come_before_the_default_ones() -> None:
    schema = schema_of(":host a rdf:Property ; mdv:label true . <http://xmlns.com/foaf/0.1/name> mdv:label true .")
    expected = [V + "host", DEFAULT_ORDER[3], *(iri for iri in DEFAULT_ORDER if iri != DEFAULT_ORDER[3])]
    assert schema.label_properties == tuple(expected)


def test_subproperties_of_a_label_property_are_labels_unless_marked_otherwise() -> None:
    schema = schema_of(
        ":nick rdfs:subPropertyOf rdfs:label . :code rdfs:subPropertyOf rdfs:label ; mdv:label false . "
        ":secret rdfs:subPropertyOf :code . :open rdfs:subPropertyOf :code ; mdv:label true ."
    )
    assert schema.label_properties == (V + "open", RDFS + "label", V + "nick", *DEFAULT_ORDER[1:])


def test_false_removes_a_default_label_property() -> None:
    assert schema_of("rdfs:label mdv:label false .").label_properties == DEFAULT_ORDER[1:]


def test_a_label_mark_changes_nothing_else() -> None:
    plain, marked = schema_of(":p rdfs:range xsd:integer ."), schema_of(":p rdfs:range xsd:integer ; mdv:label true .")
    assert (plain.classes, plain.properties, plain.datatypes) == (marked.classes, marked.properties, marked.datatypes)
    assert not diff_schemas(plain, marked) and plain.label_properties != marked.label_properties


def test_label_marks_are_checked() -> None:
    assert "must be true or false" in only_flaw_of(":p mdv:label 'maybe' .")
    assert "both a label and not a label" in only_flaw_of(":p mdv:label true, false .")
    assert "did you mean mdv:label?" in only_flaw_of(":p mdv:lable true .")


def test_a_schema_may_declare_its_own_property_of_that_name() -> None:
    """Schemas were allowed to declare it before it had a meaning."""
    schema = schema_of("<#label> a rdf:Property . :p a rdf:Property ; <#label> 'a text' .")
    assert MDV + "label" in schema.properties and schema.label_properties == DEFAULT_ORDER
