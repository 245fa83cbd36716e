"""Replace the names and literals of a program by terms."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from difflib import get_close_matches

from mdv.model import LANG_STRING, XSD_STRING, Term
from mdv.rdf.parse import is_absolute_iri
from mdv.rdf.values import parse_number
from mdv.real.parse import parse_program
from mdv.real.syntax import Program, RealConstant, RealItem, RealLiteral, RealName, RealVariable, replace_items
from mdv.real.terms import XSD_BOOLEAN, number_term
from mdv.real.vocabulary import BUILT_IN_PREFIXES
from mdv.rules.ast import Span
from mdv.rules.text_errors import Mark, quoted, rule_errors

MAX_FLAWS = 20


def read_program(
    text: str, schema_prefixes: Mapping[str, str] | None = None, document_prefixes: Mapping[str, str] | None = None
) -> Program:
    """Return the program of a text, with terms in the place of names. Raise `InvalidRule` with all flaws.

    A prefix is looked up in the program, then in the document that contains it, the schema, and the built-in ones.

    >>> read_program("rdf:type(?x, rdfs:Class)").body.triple.object.term.value
    'http://www.w3.org/2000/01/rdf-schema#Class'
    """
    return resolve(parse_program(text), text, {**(schema_prefixes or {}), **(document_prefixes or {})})


def resolve(program: Program, text: str, prefixes: Mapping[str, str]) -> Program:
    """Return a parsed program with terms in the place of names and literals. Raise `InvalidRule` with all flaws."""
    names = _Names({**BUILT_IN_PREFIXES, **prefixes, **dict(program.prefixes)})
    for prefix, iri in program.prefixes:
        if not is_absolute_iri(iri):
            names.flaws.append(Mark(program.span, f"the prefix {prefix}: stands for {quoted(iri)}, which is no URI"))
    body = replace_items(program.body, names.constant)
    if names.flaws:
        raise rule_errors(text, names.flaws[:MAX_FLAWS], "program")
    return replace(program, body=body)


class _Names:
    def __init__(self, prefixes: Mapping[str, str]) -> None:
        self.prefixes = prefixes
        self.flaws: list[Mark] = []

    def constant(self, item: RealItem) -> RealItem:
        match item:
            case RealName(span, text):
                return RealConstant(span, Term.uri(self.iri(text, span)))
            case RealLiteral(span, form, text, lang, datatype):
                if form == "number":
                    if parse_number(text) is None:
                        self.flaws.append(Mark(span, f"{quoted(text)} is too large or has too many digits"))
                    return RealConstant(span, number_term(text), is_typed=True)
                if form == "symbol" and text.lower() in ("true", "false"):
                    return RealConstant(span, Term.literal(text.lower(), datatype=XSD_BOOLEAN), is_typed=True)
                iri = None if datatype is None else self.iri(datatype.text, datatype.span)
                if iri == LANG_STRING:
                    self.flaws.append(Mark(span, "a text with the datatype rdf:langString needs a language"))
                return RealConstant(span, Term.literal(text, lang, None if iri == XSD_STRING else iri))
            case RealVariable() | RealConstant():
                return item

    def iri(self, name: str, span: Span) -> str:
        if name.startswith("<"):
            iri = name[1:-1]
        else:
            prefix, _, local = name.partition(":")
            if prefix not in self.prefixes:
                near = get_close_matches(prefix[:80], [one for one in self.prefixes if one], 1)
                hint = f"did you mean {near[0]}?" if near else f"declare it: PREFIX {prefix[:40]}: <http://…>"
                if len(self.flaws) < MAX_FLAWS:
                    self.flaws.append(Mark(span, f"unknown prefix {quoted(prefix + ':')}", hint))
                return "urn:mdv:unknown"
            iri = self.prefixes[prefix] + local
        if not is_absolute_iri(iri):
            self.flaws.append(Mark(span, f"{quoted(iri)} is not an absolute URI", "write it in full: <http://…>"))
        return iri
