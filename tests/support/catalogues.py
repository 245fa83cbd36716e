"""Small catalogues: documents in several syntaxes that share resources, contain blank nodes and some flaws."""

from __future__ import annotations

import json
from pathlib import Path

BASE = "http://books.example/"
NAMES = "http://books.example/terms#"

SCHEMA = f"""\
@prefix rdf: <http://www.w3.org/1999/02/22-rdf-syntax-ns#> . @prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .
@prefix xsd: <http://www.w3.org/2001/XMLSchema#> . @prefix mdv: <urn:mdv:schema#> . @prefix b: <{NAMES}> .
b:Book a rdfs:Class . b:Person a rdfs:Class . b:Note a rdfs:Class .
b:title a rdf:Property ; rdfs:domain b:Book ; rdfs:range xsd:string .
b:pages a rdf:Property ; rdfs:domain b:Book ; rdfs:range xsd:integer .
b:author a rdf:Property ; rdfs:domain b:Book ; rdfs:range b:Person ; mdv:reference mdv:strong .
b:next a rdf:Property ; rdfs:domain b:Book ; rdfs:range b:Book .
b:name a rdf:Property ; rdfs:domain b:Person ; rdfs:range xsd:string .
b:note a rdf:Property ; rdfs:domain b:Book ; rdfs:range b:Note ; mdv:setValued true .
b:text a rdf:Property ; rdfs:domain b:Note ; rdfs:range xsd:string .
"""

RULES = (
    "search Book b register b where b.pages > 300",
    "search Book b register b where b.title contains 'green'",
    "search Book b register b where b.author.name = 'Author 3'",
    "search Book b, Person p register p where b.author = p and b.pages < 150",
)


def rdf_xml(number: int, edition: int = 1) -> str:
    return f"""<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" xmlns:b="{NAMES}" xml:base="{BASE}">
  <b:Book rdf:about="book/{number}">
    <b:title>The {"green" if (number + edition) % 3 == 0 else "red"} book {number}</b:title>
    <b:pages>{(number * 37 + edition * 11) % 500}</b:pages>
    <b:author rdf:resource="person/{number % 5}"/>
    <b:next rdf:resource="book/{number + 1}"/>
    <b:note><b:Note b:text="note {number} of edition {edition}"/></b:note>
    <b:note><b:Note b:text="the same in all"/></b:note>
  </b:Book>
  <b:Person rdf:about="person/{number % 5}"><b:name>Author {number % 5}</b:name></b:Person>
</rdf:RDF>
"""


def turtle(number: int, edition: int = 1) -> str:
    return f"""@prefix b: <{NAMES}> . @base <{BASE}> .
<book/{number}> a b:Book ; b:title "The tortoise {number}" ; b:pages {(number * 53 + edition) % 500} ;
    b:author <person/{number % 5}> ; b:note [ a b:Note ; b:text "in Turtle, {edition}" ] .
<person/{number % 5}> a b:Person ; b:name "Author {number % 5}" .
"""


def json_ld(number: int, edition: int = 1) -> str:
    return json.dumps(
        {
            "@id": f"{BASE}book/{number}",
            "@type": NAMES + "Book",
            NAMES + "title": f"A green tree {number}.{edition}",
            NAMES + "pages": number % 500,
            NAMES + "author": {"@id": f"{BASE}person/{number % 5}"},
        }
    )


FLAWED = {
    "broken.rdf": "<rdf:RDF",
    "untrue.rdf": rdf_xml(7).replace("<b:pages>270<", "<b:pages>many<"),
    "unclosed.ttl": f"@prefix b: <{NAMES}> .\n<{BASE}book/x> a b:Book ;\n  b:pages 7",
    "strange.jsonld": json.dumps({"@id": BASE + "x", "@type": NAMES + "Song"}),
    "empty.ttl": "",
}


def catalogue(documents: int, edition: int = 1) -> dict[str, bytes]:
    """Return files by name. In a later edition some documents are unchanged."""
    makers = {".rdf": rdf_xml, ".ttl": turtle, ".jsonld": json_ld}
    files = {}
    for number in range(documents):
        suffix = (".rdf", ".rdf", ".ttl", ".jsonld")[number % 4]
        files[f"{number:05}{suffix}"] = makers[suffix](number, edition if number % 2 else 1).encode()
    return files


def write(files: dict[str, bytes], folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name).write_bytes(text)
    return folder
