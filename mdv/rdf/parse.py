"""Parse a text that has passed the gate into statements."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Mapping

import pyoxigraph
from lxml import etree
from pyoxigraph import BlankNode, DefaultGraph, Literal, NamedNode, RdfFormat

from mdv.errors import BadRequest, Conflict, Flaw, InvalidDocument, NotWellFormed, TooLarge
from mdv.model import LANG_STRING, XSD_STRING, ParsedDocument, Statement, Term
from mdv.rdf.gate_xml import render_tree
from mdv.rdf.gated import Gated, summarise_flaws
from mdv.rdf.locate import locate_quoted_texts
from mdv.rdf.syntax import JSON_LD, N_TRIPLES

MAX_URI_BYTES = 2048
RESERVED_URI_PREFIX = "urn:mdv:"
"""The prefix of URIs that MDV itself uses, such as that of the schema."""
MAX_FLAWS = 100
"""Errors that are reported for one document."""
MAX_VALUE_BYTES = 16_000_000
"""The longest literal, as written in N-Triples. The N-Triples and Turtle parsers limit a token to 16 MiB. With this
limit, a document that is accepted in one syntax can be exported and registered again in every other."""
_MAX_EXPANSION = 6
"""The most bytes that N-Triples uses for a character: \\u0001."""

_XML_BASE = "{http://www.w3.org/XML/1998/namespace}base"


def parse(gated: Gated, uri: str) -> ParsedDocument:
    """Return the statements of a gated text, with relative URIs resolved against `uri`.

    >>> from mdv.rdf.gate import gate
    >>> from mdv.rdf.syntax import TURTLE
    >>> parse(gate(b"<#a> <http://v/p> 'x' .", TURTLE), "http://d/doc").statements
    (Statement(subject='http://d/doc#a', property='http://v/p',
               object=Term(type='literal', value='x', lang=None, datatype=None)),)
    """
    text = None if gated.tree is None else _with_absolute_bases(gated.tree, uri)
    reader = pyoxigraph.parse(text or gated.text, format=gated.syntax.format, base_iri=uri)
    statements: list[Statement] = []
    errors: list[SyntaxError] = []
    too_long: list[Flaw] = []
    while len(errors) + len(too_long) < MAX_FLAWS:
        try:
            quad = next(reader)
        except StopIteration:
            break
        except MemoryError:
            # The parser limits the size of one statement.
            raise _too_large() from None
        except SyntaxError as error:
            errors.append(error)
            if gated.syntax is JSON_LD or error.msg.endswith(_LOST_POSITION):
                break
            continue
        if type(quad.graph_name) is not DefaultGraph:
            raise InvalidDocument(
                "The document contains a named graph. A document is one graph: register each graph under its own URI."
            )
        statement = Statement(_name(quad.subject), quad.predicate.value, _term(quad.object))
        if gated.long_values:
            statement = _with_long_value(statement, gated.long_values)
        if is_value_too_large(statement.object):
            raise _too_large(statement)
        if _is_too_long(statement):
            too_long.append(_too_long(statement))
        else:
            statements.append(statement)
    if errors:
        raise _not_well_formed(errors, gated)
    if too_long:
        raise InvalidDocument(summarise_flaws(too_long, "The document"), too_long)
    if gated.syntax is JSON_LD:
        _refuse_dropped(gated, uri, len(statements))
    if not statements:
        hint = " JSON-LD ignores a key that no @context maps to a URI." if gated.syntax is JSON_LD else ""
        raise NotWellFormed(f"The document has no statements. To delete a document, delete it by its URI.{hint}")
    return ParsedDocument(uri, tuple(statements), gated.prefixes or dict(reader.prefixes))


def check_document_uri(uri: str | None) -> str:
    """Return `uri` if a document can have it. Raise `BadRequest` otherwise.

    >>> check_document_uri("doc.rdf")
    Traceback (most recent call last):
    mdv.errors.BadRequest: 'doc.rdf' is not an absolute URI. A document has one, such as http://example.org/doc.rdf.
    """
    if not uri:
        raise BadRequest("The URI of the document is missing. Add ?uri=URI.")
    if len(uri.encode("utf-8", "replace")) > MAX_URI_BYTES:
        raise BadRequest(f"The URI is longer than {MAX_URI_BYTES:,} bytes.")
    if "#" in uri:
        raise BadRequest(f"{uri!r} has a fragment (#…). The URI of a document has none; those of its resources do.")
    if not is_absolute_iri(uri):
        raise BadRequest(f"{uri!r} is not an absolute URI. A document has one, such as http://example.org/doc.rdf.")
    return uri


def check_registration_uri(uri: str | None) -> str:
    """Return `uri` if a document can be registered under it. Raise `Conflict` if it is one of MDV's own.

    >>> check_registration_uri("urn:mdv:updates")
    Traceback (most recent call last):
    mdv.errors.Conflict: 'urn:mdv:updates' begins with urn:mdv:. MDV itself writes these documents, so they cannot be
        registered. Use another URI.
    """
    checked = check_document_uri(uri)
    if checked[: len(RESERVED_URI_PREFIX)].lower() == RESERVED_URI_PREFIX:
        raise Conflict(
            f"{checked!r} begins with {RESERVED_URI_PREFIX}. MDV itself writes these documents, so they cannot be"
            " registered. Use another URI."
        )
    return checked


_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:.")
_PLAIN = re.compile(
    r"[A-Za-z][A-Za-z0-9+.-]*://[A-Za-z0-9.-]+(?:/[A-Za-z0-9._~!$&'()*+,;=:@/-]*)?(?:#[A-Za-z0-9._~!$&'()*+,;=:@/?-]*)?"
)
"""Common IRIs that are certainly valid, so the parser need not check them."""


def is_absolute_iri(text: str) -> bool:
    """True if the parser accepts `text` as an absolute IRI.

    >>> is_absolute_iri("http://a/b"), is_absolute_iri("a/b"), is_absolute_iri("http://a b")
    (True, False, False)
    """
    if _PLAIN.fullmatch(text):
        return True
    if not _SCHEME.match(text):
        return False
    try:
        NamedNode(text)
        next(iter(pyoxigraph.parse(f"<{text}> <urn:p> <urn:o> .", format=pyoxigraph.RdfFormat.N_TRIPLES)))
    except (ValueError, SyntaxError, StopIteration):
        return False
    return True


def _name(node: object) -> str:
    if type(node) is NamedNode:
        return node.value
    if type(node) is BlankNode:
        return "_:" + node.value
    raise InvalidDocument("The document contains a quoted statement (RDF-star), which MDV does not store.")


def _term(node: object) -> Term:
    if type(node) is NamedNode:
        return Term("uri", node.value)
    if type(node) is Literal:
        return read_literal(node)
    return Term("blank", _name(node))


def read_literal(node: Literal) -> Term:
    """Return a literal of the parser as a term. Raise `InvalidDocument` if MDV cannot store it."""
    datatype = node.datatype.value
    if datatype == XSD_STRING:
        return Term("literal", node.value)
    if node.language is None and datatype in (LANG_STRING, LANG_STRING.replace("lang", "dirLang")):
        raise InvalidDocument(f"{node.value[:60]!r} has the datatype rdf:langString but no language.")
    if node.language is not None:
        if datatype != LANG_STRING:
            raise InvalidDocument(f"{node.value[:60]!r} has a base direction, which MDV does not store.")
        return Term("literal", node.value, node.language)
    return Term("literal", node.value, None, datatype)


def _with_long_value(statement: Statement, long_values: Mapping[str, str]) -> Statement:
    """Return `statement` with its original value if the gate has replaced it by a placeholder."""
    subject, property, term = statement
    if term.type == "literal" and term.value in long_values:
        return Statement(subject, property, term._replace(value=long_values[term.value]))
    for placeholder, value in long_values.items():
        if any(placeholder in part for part in (subject, property, *term) if part is not None):
            raise InvalidDocument(
                f"A string of {len(value):,} characters, {value[:40]!r}…, is part of a name or of a JSON literal."
                " A string of that length can only be a value."
            )
    return statement


def is_value_too_large(term: Term) -> bool:
    """True if a literal has more than `MAX_VALUE_BYTES` in N-Triples."""
    if term.type != "literal" or len(term.value) <= MAX_VALUE_BYTES // _MAX_EXPANSION:
        return False
    return len(str(Literal(term.value)).encode()) > MAX_VALUE_BYTES


def _too_large(statement: Statement | None = None) -> TooLarge:
    where = f" of <{statement.subject}>" if statement is not None else ""
    return TooLarge(
        f"A single value{where} has more than {MAX_VALUE_BYTES:,} bytes in N-Triples, which is the limit."
        " Split it into several values."
    )


def _is_too_long(statement: Statement) -> bool:
    """True if a name is certainly too long. Short prefixes and bases can expand to many long names.

    This counts characters, not bytes. Names that pass here but have too many bytes are refused later.
    """
    subject, property, (type, value, _, datatype) = statement
    name = value if type != "literal" else datatype or ""
    return len(subject) > MAX_URI_BYTES or len(property) > MAX_URI_BYTES or len(name) > MAX_URI_BYTES


def _too_long(statement: Statement) -> Flaw:
    subject, property, term = statement
    longest = max((subject, property, term.datatype or "" if term.type == "literal" else term.value), key=len)
    return Flaw(
        f"{longest[:80]}… is longer than {MAX_URI_BYTES:,} bytes", subject=subject[:200], property=property[:200]
    )


def _with_absolute_bases(tree: etree._Element, uri: str) -> bytes | None:
    """Return the text with every xml:base made absolute, as the parser requires; None if all of them are absolute."""
    if all(is_absolute_iri(str(base)) for base in set(tree.xpath("descendant-or-self::*/@xml:base"))):
        return None
    tree = copy.deepcopy(tree)
    bases: dict[etree._Element, str] = {}
    for element in tree.xpath("descendant-or-self::*[@xml:base]"):
        outer = next((bases[above] for above in element.iterancestors() if above in bases), uri)
        bases[element] = _resolve(str(element.get(_XML_BASE)), outer)
        element.set(_XML_BASE, bases[element])
    return render_tree(tree)


def _resolve(reference: str, base: str) -> str:
    """Resolve `reference` against `base` by the parser's rules. Return it unchanged if it is not a reference."""
    try:
        triple = next(pyoxigraph.parse(f"<> <urn:p> <{reference}> .", format=RdfFormat.TURTLE, base_iri=base))
    except (SyntaxError, ValueError, StopIteration):
        return reference
    return triple.object.value if type(triple.object) is NamedNode else reference


def _refuse_dropped(gated: Gated, uri: str, kept: int) -> None:
    """Report invalid IRIs and language tags, which the JSON-LD parser drops silently. A lenient parser finds them.

    Keys that are not mapped to a URI are ignored, as JSON-LD specifies.
    """
    flaws = []
    for quad in pyoxigraph.parse(gated.text, format=gated.syntax.format, base_iri=uri, lenient=True):
        subject, name, value = quad.subject, quad.predicate.value, quad.object
        if not _SCHEME.match(name) and not name.startswith("_:"):
            continue
        kept -= 1
        names = [name, *(node.value for node in (subject, value) if type(node) is NamedNode)]
        for wrong in (name for name in names if not is_absolute_iri(name)):
            flaws.append(Flaw(f"{wrong[:80]!r} is not a valid IRI", subject=str(subject)[:200], property=name[:200]))
        if type(value) is Literal and value.language is not None and not _is_language(value.language):
            flaws.append(Flaw(f"{value.language[:80]!r} is not a language tag", property=name[:200]))
        if len(flaws) >= MAX_FLAWS:
            break
    if kept < 0 and flaws:
        raise NotWellFormed(summarise_flaws(flaws, "The JSON-LD"), flaws)
    if kept < 0:
        raise NotWellFormed("The JSON-LD contains values that cannot be RDF statements.")


def _is_language(tag: str) -> bool:
    try:
        Literal("", language=tag)
    except ValueError:
        return False
    return True


_REMOTE_CONTEXT = "LoadDocumentCallback"
_NAME_ERROR = re.compile("is not a valid IRI|language tag|already been used")
_LOST_POSITION = ("Line jumps are not allowed in string literals, use \\n", "Unexpected end of file", "Unexpected end")
"""After these errors the Turtle parser has lost its position, and its further errors would be misleading."""


def _not_well_formed(errors: list[SyntaxError], gated: Gated) -> NotWellFormed:
    reasons = [_reason(error) for error in errors]
    if any(_REMOTE_CONTEXT in reason for reason in reasons):
        return NotWellFormed(
            "The JSON-LD refers to a remote @context, which MDV does not fetch. Put the terms into the document."
        )
    if gated.tree is not None:
        # The gate has checked the grammar. The parser reports grammar errors only as a consequence of a bad name.
        reasons = [reason for reason in reasons if _NAME_ERROR.search(reason)] or reasons[:1]
        flaws = [
            Flaw(reason, line) for reason, line in zip(reasons, locate_quoted_texts(gated.tree, reasons), strict=True)
        ]
    elif gated.syntax is N_TRIPLES:
        flaws = list(_flawed_lines(gated.text))
    else:
        flaws = [Flaw(reason, e.lineno, e.offset) for reason, e in zip(reasons, errors, strict=True)]
    return NotWellFormed(summarise_flaws(flaws, f"The {gated.syntax.label}"), flaws)


def _reason(error: SyntaxError) -> str:
    reason = re.sub(r"^Parser error at .*?: ", "", error.msg)
    return re.sub(r"^error while parsing IRI '(.*?)': ", r"'\1' is not a valid IRI: ", reason, flags=re.DOTALL)


def _flawed_lines(text: bytes) -> Iterator[Flaw]:
    """Yield a flaw for each invalid line of N-Triples, where every line is independent."""
    found = 0
    for number, line in enumerate(re.split(rb"\r\n|\r|\n", text), 1):
        try:
            for _ in pyoxigraph.parse(line, format=N_TRIPLES.format):
                pass
        except SyntaxError as error:
            yield Flaw(_reason(error), number, error.offset)
            found += 1
            if found == MAX_FLAWS:
                return
