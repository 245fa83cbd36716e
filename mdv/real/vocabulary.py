"""The names that programs use without declaring them."""

from __future__ import annotations

from mdv import model
from mdv.model import MDV, RDF, RDFS, XSD

LRM, REAL = model.LRM, model.REAL
PRIMITIVE = "urn:mdv:real:primitive#"
ENGINE = "urn:mdv:real:engine#"
SCHEMA_CONTEXT = "urn:mdv:schema"
"""The read-only context that contains the statements of the schema."""

BUILT_IN_PREFIXES = {
    "rdf": RDF,
    "rdfs": RDFS,
    "xsd": XSD,
    "mdv": MDV,
    "lrm": LRM,
    "real": REAL,
    "primitive": PRIMITIVE,
    "engine": ENGINE,
}

RDF_GRAPH = RDF + "Graph"
RDF_FIRST, RDF_REST, RDF_NIL = RDF + "first", RDF + "rest", RDF + "nil"
LRM_BODY = LRM + "body"
INPUT_SIGNATURE, OUTPUT_SIGNATURE = LRM + "input-signature", LRM + "output-signature"
REAL_CODE, REAL_VARIABLES = REAL + "code", REAL + "variables"

PRIMITIVES = {
    "self": (0, 1),
    "now": (0, 1),
    "sleep": (1, 0),
    "log": (1, 0),
    "equal": (2, 0),
    "less": (2, 0),
    "add": (2, 1),
    "inc": (1, 1),
    "concat": (2, 1),
    "service": (1, 0),
}
"""The primitives, with the numbers of their inputs and outputs."""
