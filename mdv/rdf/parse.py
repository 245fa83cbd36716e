"""Parse: a text that has passed the gate becomes statements."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator

import pyoxigraph
from lxml import etree
from pyoxigraph import BlankNode, DefaultGraph, Literal, NamedNode, RdfFormat

from mdv.errors import BadRequest, Flaw, InvalidDocument, NotWellFormed, TooLarge
from mdv.model import LANG_STRING, XSD_STRING, ParsedDocument, Statement, Term
from mdv.rdf.gate_xml import render
from mdv.rdf.gated import Gated, count_flaws
from mdv.rdf.locate import locate_texts
from mdv.rdf.syntax import JSON_LD, N_TRIPLES

MAX_URI_BYTES = 2048
OWN_NAMES = "urn:mdv:"
"""With which the names begin under which MDV itself works, such as the schema's."""
MAX_FLAWS = 100
"""So many errors of one document are told, at most."""

_XML_BASE = "{http://www.w3.org/XML/1998/namespace}base"


def parse(gated: Gated, uri: str) -> ParsedDocument:
    """The statements of a gated text, relative names resolved against `uri`.

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
            # The parser's own limit on what it keeps of one statement.
            raise TooLarge("A single value is larger than 16 MiB, which is the most that can be read.") from None
        except SyntaxError as error:
            errors.append(error)
            if gated.syntax is JSON_LD or error.msg.endswith(_LOST):
                break
            continue
        if type(quad.graph_name) is not DefaultGraph:
            raise InvalidDocument(
                "The document holds a named graph. A document is one graph: register each under its own URI."
            )
        statement = Statement(_name(quad.subject), quad.predicate.value, _term(quad.object))
        if _is_too_long(statement):
            too_long.append(_too_long(statement))
        else:
            statements.append(statement)
    if errors:
        raise _not_well_formed(errors, gated)
    if too_long:
        raise InvalidDocument(count_flaws(too_long, "The document"), too_long)
    if gated.syntax is JSON_LD:
        _refuse_dropped(gated, uri, len(statements))
    if not statements:
        hint = " In JSON-LD, a key that no @context maps to a URI says nothing." if gated.syntax is JSON_LD else ""
        raise NotWellFormed(f"The document holds no statement. To delete a document, delete it by name.{hint}")
    return ParsedDocument(uri, tuple(statements), gated.prefixes or dict(reader.prefixes))


def check_document_uri(uri: str | None) -> str:
    """`uri`, if a document can be registered under it.

    >>> check_document_uri("doc.rdf")
    Traceback (most recent call last):
    mdv.errors.BadRequest: 'doc.rdf' is not an absolute URI: a document's name is one, as in http://example.org/doc.rdf.
    """
    if not uri:
        raise BadRequest("Say which document with ?uri=URI.")
    if len(uri.encode("utf-8", "replace")) > MAX_URI_BYTES:
        raise BadRequest(f"The URI is longer than {MAX_URI_BYTES:,} bytes.")
    if "#" in uri:
        raise BadRequest(f"{uri!r} has a fragment (#…); a document's name has none, its resources' names do.")
    if not is_absolute_iri(uri):
        raise BadRequest(f"{uri!r} is not an absolute URI: a document's name is one, as in http://example.org/doc.rdf.")
    if uri[: len(OWN_NAMES)].lower() == OWN_NAMES:
        raise BadRequest(f"{uri!r} begins with {OWN_NAMES}, as MDV's own names do: give the document another name.")
    return uri


_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:.")
_PLAIN = re.compile(
    r"[A-Za-z][A-Za-z0-9+.-]*://[A-Za-z0-9.-]+(?:/[A-Za-z0-9._~!$&'()*+,;=:@/-]*)?(?:#[A-Za-z0-9._~!$&'()*+,;=:@/?-]*)?"
)
"""What is an IRI beyond doubt: most are, and need not be tried."""


def is_absolute_iri(text: str) -> bool:
    """Whether `text` is a whole IRI by the parser's own measure.

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
    raise InvalidDocument("The document speaks of a quoted statement (RDF-star), which MDV does not store.")


def _term(node: object) -> Term:
    if type(node) is NamedNode:
        return Term("uri", node.value)
    if type(node) is Literal:
        datatype = node.datatype.value
        if datatype == XSD_STRING:
            return Term("literal", node.value)
        if node.language is None and datatype in (LANG_STRING, LANG_STRING.replace("lang", "dirLang")):
            raise InvalidDocument(f"{node.value[:60]!r} has the datatype rdf:langString and no language.")
        if node.language is not None:
            if datatype != LANG_STRING:
                raise InvalidDocument(f"{node.value[:60]!r} has a base direction, which MDV does not store.")
            return Term("literal", node.value, node.language)
        return Term("literal", node.value, None, datatype)
    return Term("blank", _name(node))


def _is_too_long(statement: Statement) -> bool:
    """Whether a name is so long that it is not worth keeping: prefixes and bases can make many of them out of little.

    A character takes four bytes at most, so what is let pass here is refused later where it has to be.
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
    """The text with every xml:base absolute, since the parser takes no other; None if all of them are."""
    if all(is_absolute_iri(str(base)) for base in set(tree.xpath("descendant-or-self::*/@xml:base"))):
        return None
    tree = copy.deepcopy(tree)
    bases: dict[etree._Element, str] = {}
    for element in tree.xpath("descendant-or-self::*[@xml:base]"):
        outer = next((bases[above] for above in element.iterancestors() if above in bases), uri)
        bases[element] = _resolve(str(element.get(_XML_BASE)), outer)
        element.set(_XML_BASE, bases[element])
    return render(tree)


def _resolve(reference: str, base: str) -> str:
    """`reference` against `base`, by the parser's own rules; as it is where it is no reference."""
    try:
        triple = next(pyoxigraph.parse(f"<> <urn:p> <{reference}> .", format=RdfFormat.TURTLE, base_iri=base))
    except (SyntaxError, ValueError, StopIteration):
        return reference
    return triple.object.value if type(triple.object) is NamedNode else reference


def _refuse_dropped(gated: Gated, uri: str, kept: int) -> None:
    """JSON-LD leaves out what is no IRI or no language without a word. A reader that checks neither tells what it was.

    Keys that nothing maps to a URI are left out by JSON-LD's own law: they are comments.
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
        raise NotWellFormed(count_flaws(flaws, "The JSON-LD"), flaws)
    if kept < 0:
        raise NotWellFormed("The JSON-LD says things that cannot be statements.")


def _is_language(tag: str) -> bool:
    try:
        Literal("", language=tag)
    except ValueError:
        return False
    return True


_REMOTE_CONTEXT = "LoadDocumentCallback"
_OF_NAMES = re.compile("is not a valid IRI|language tag|already been used")
_LOST = ("Line jumps are not allowed in string literals, use \\n", "Unexpected end of file", "Unexpected end")
"""After these the Turtle parser does not know where it is: what it complains of next is not the author's doing."""


def _not_well_formed(errors: list[SyntaxError], gated: Gated) -> NotWellFormed:
    reasons = [_reason(error) for error in errors]
    if any(_REMOTE_CONTEXT in reason for reason in reasons):
        return NotWellFormed(
            "The JSON-LD names a remote @context. MDV fetches nothing: put the context's terms into the document."
        )
    if gated.tree is not None:
        # The gate has seen to the grammar: of it the parser only complains when a bad name has led it astray.
        reasons = [reason for reason in reasons if _OF_NAMES.search(reason)] or reasons[:1]
        flaws = [Flaw(reason, line) for reason, line in zip(reasons, locate_texts(gated.tree, reasons), strict=True)]
    elif gated.syntax is N_TRIPLES:
        flaws = list(_flawed_lines(gated.text))
    else:
        flaws = [Flaw(reason, e.lineno, e.offset) for reason, e in zip(reasons, errors, strict=True)]
    return NotWellFormed(count_flaws(flaws, f"The {gated.syntax.label}"), flaws)


def _reason(error: SyntaxError) -> str:
    reason = re.sub(r"^Parser error at .*?: ", "", error.msg)
    return re.sub(r"^error while parsing IRI '(.*?)': ", r"'\1' is not a valid IRI: ", reason, flags=re.DOTALL)


def _flawed_lines(text: bytes) -> Iterator[Flaw]:
    """Each line of N-Triples stands for itself, so each flawed one is told."""
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
