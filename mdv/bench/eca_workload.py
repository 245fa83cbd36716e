"""The workload of `mdv bench eca`: learning objects, and rules like Example 3 of the paper, one for each subject."""

from __future__ import annotations

from collections.abc import Iterator

NAMESPACE = "http://mdv.example/learning#"

SCHEMA = b"""
@prefix : <http://mdv.example/learning#> .
@prefix rdf: <http://www.w3.org/1999/02/22-rdf-syntax-ns#> .
@prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .
@prefix xsd: <http://www.w3.org/2001/XMLSchema#> .
@prefix mdv: <urn:mdv:schema#> .
:LearningObject a rdfs:Class . :User a rdfs:Class . :Archive a rdfs:Class .
:title a rdf:Property ; rdfs:range xsd:string .
:subject a rdf:Property ; rdfs:range xsd:string ; mdv:setValued true .
:level a rdf:Property ; rdfs:range xsd:integer .
:inbox a rdf:Property ; mdv:setValued true .
:stage a rdf:Property ; rdfs:range xsd:integer ; mdv:setValued true .
"""

TURTLE_PREFIX = f"@prefix : <{NAMESPACE}> .\n"
SILENT = "a subject without a rule"


def subject_of(number: int) -> str:
    return f"subject {number}"


def document_uri(number: int) -> str:
    return f"http://mdv.example/learning/{number}.ttl"


def learning_object(number: int, subject: str) -> tuple[str, bytes]:
    """Return the URI and the text of a document with one learning object."""
    return document_uri(number), learning_objects(number, [subject])


def learning_objects(number: int, subjects: list[str]) -> bytes:
    """Return the text of a document with several learning objects."""
    objects = (
        f"<#lo{n}> a :LearningObject ; :title 'Unit {number}.{n}' ; :subject '{subject}' ; :level {number % 9} .\n"
        for n, subject in enumerate(subjects)
    )
    return (TURTLE_PREFIX + "".join(objects)).encode()


def watching_rules(count: int, per_subject: int = 1) -> Iterator[str]:
    """Yield rules that every learning object triggers. `per_subject`: how many of them fire for a subject."""
    for number in range(count):
        yield (
            "ON INSERT resource() AS INSTANCE OF LearningObject"
            f" IF $delta/target(subject) = '{subject_of(number // per_subject)}'"
            f" DO INSERT (resource(<{NAMESPACE}user{number}>), inbox, $delta)"
        )


def idle_rules(count: int) -> Iterator[str]:
    """Yield rules that no learning object triggers."""
    for number in range(count):
        yield (
            f"ON INSERT resource() AS INSTANCE OF Archive IF $delta/target(title) = '{subject_of(number)}'"
            f" DO INSERT (resource(<{NAMESPACE}user{number}>), inbox, $delta)"
        )


def chain_rules(length: int) -> Iterator[str]:
    """Yield rules that trigger each other one after the other, beginning with stage 0."""
    for number in range(length):
        yield f"ON INSERT (_, stage, {number}) IF TRUE DO INSERT ($delta, stage, {number + 1})"
