"""The gate for RDF/XML: no DOCTYPE, and every element and attribute as the RDF/XML grammar allows."""

from __future__ import annotations

import codecs
import copy
import re
from typing import NamedTuple
from urllib.parse import urldefrag, urljoin

from lxml import etree

from mdv.errors import Flaw, NotWellFormed
from mdv.model import RDF, XSD_STRING
from mdv.rdf.gated import MAX_DEPTH, Gated, not_well_formed, summarise_flaws, too_deep
from mdv.rdf.syntax import RDF_XML

MAX_TEXT_BYTES = 10_000_000
"""The longest text of one element or attribute in RDF/XML: a limit of libxml2. Other syntaxes have no such limit."""

MAX_ATTRIBUTES = 1_000
"""Attributes of one element. The parser's time grows with their square."""

_RDF_ROOT = f"{{{RDF}}}RDF"
_XML = "{http://www.w3.org/XML/1998/namespace}"
_XSI = "{http://www.w3.org/2001/XMLSchema-instance}"
_LANG, _BASE = _XML + "lang", _XML + "base"
_ABOUT, _ID, _NODE_ID, _RESOURCE, _PARSE_TYPE, _DATATYPE = (
    f"{{{RDF}}}{name}" for name in ("about", "ID", "nodeID", "resource", "parseType", "datatype")
)
_SYNTAX_ATTRIBUTES = frozenset({"ID", "about", "resource", "nodeID", "parseType", "datatype"})
_SYNTAX_NAMES = frozenset({_ABOUT, _ID, _NODE_ID, _RESOURCE, _PARSE_TYPE, _DATATYPE})
_WITHDRAWN = frozenset(f"{{{RDF}}}{name}" for name in ("bagID", "aboutEach", "aboutEachPrefix"))
_NEVER_AN_ELEMENT = _SYNTAX_NAMES | _WITHDRAWN | {_RDF_ROOT}
_NEVER_A_NODE = _NEVER_AN_ELEMENT | {f"{{{RDF}}}li"}
_NEVER_A_PROPERTY = _NEVER_AN_ELEMENT | {f"{{{RDF}}}Description"}
_NEVER_AN_ATTRIBUTE = _WITHDRAWN | {_RDF_ROOT, f"{{{RDF}}}li", f"{{{RDF}}}Description"}
_DOCTYPE = re.compile(
    rb"^(?:\xef\xbb\xbf|\xff\xfe|\xfe\xff)?(?:\s++|<\?.*?\?>|<!--.*?-->)*+<!DOCTYPE\s++([^\s>\[]*+)", re.DOTALL
)
NAME_START = "A-Z_a-zÀ-ÖØ-öø-\u02ff\u0370-\u037d\u037f-\u1fff\u200c\u200d\u2070-\u218f\u2c00-\u2fef\u3001-\ud7ff" + (
    "\uf900-\ufdcf\ufdf0-\ufffd\U00010000-\U000effff"
)
NAME_REST = f"-.0-9·\u0300-\u036f\u203f-\u2040{NAME_START}"
_NCNAME = re.compile(f"[{NAME_START}][{NAME_REST}]*+")


def gate_xml(body: bytes, charset: str | None) -> Gated:
    root = _read_xml(body, charset)
    docinfo = root.getroottree().docinfo
    if docinfo.doctype or docinfo.internalDTD is not None:
        raise _has_doctype(str(docinfo.root_name))
    if root.tag != _RDF_ROOT:
        hint = " It looks like a web page." if str(root.tag).lower().endswith("html") else ""
        raise NotWellFormed(
            f"The outermost element is <{etree.QName(root).localname}>, not <rdf:RDF> of the namespace {RDF}.{hint}",
            [Flaw("no rdf:RDF", line=root.sourceline)],
        )
    flaws = _Normaliser().normalise(root)
    if flaws:
        raise NotWellFormed(summarise_flaws(flaws, "The RDF/XML"), flaws)
    # XML literals are plain text by now. Elsewhere, comments and processing instructions would only split texts.
    etree.strip_tags(root, etree.Comment, etree.ProcessingInstruction)
    return Gated(render_tree(root), RDF_XML, root, {prefix or "": uri for prefix, uri in root.nsmap.items() if uri})


def render_tree(tree: etree._Element) -> bytes:
    """Return the UTF-8 text of a tree, as passed to the parser."""
    return bytes(etree.tostring(tree, encoding="utf-8"))


def _read_xml(body: bytes, charset: str | None) -> etree._Element:
    if body.startswith((codecs.BOM_UTF8, codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        charset = None  # RFC 7303: a byte order mark has precedence over the header.
    try:
        parser = etree.XMLParser(resolve_entities=False, no_network=True, huge_tree=False, encoding=charset or None)
    except (LookupError, ValueError):
        raise NotWellFormed(f"charset={charset!r} is not a known encoding. Send UTF-8.") from None
    try:
        return etree.fromstring(body, parser)
    except etree.XMLSyntaxError as error:
        # Only for the error message, so UTF-16 without its NUL bytes is good enough.
        doctype = _DOCTYPE.match(body.replace(b"\0", b""))
        if doctype:
            raise _has_doctype(doctype[1].decode("ascii", "replace")) from None
        raise _bad_xml(error) from None


def _bad_xml(error: etree.XMLSyntaxError) -> NotWellFormed:
    line, column = error.position
    reason = re.sub(r"\s*, line \d+, column \d+$", "", error.msg or "not XML").strip()
    if reason.startswith("Excessive depth"):
        return too_deep(RDF_XML, line, column)
    if "XML_PARSE_HUGE" in reason or "too big" in reason:
        flaw = Flaw(f"a text, attribute or comment of more than {MAX_TEXT_BYTES:,} bytes", line, column)
        limit = f"A text, attribute or comment of RDF/XML can have {MAX_TEXT_BYTES:,} bytes"
        return NotWellFormed(f"{limit}: {flaw}. Send Turtle.", [flaw])
    if "invalid xmlChar value" in reason or reason.startswith("Invalid character"):
        number = re.search(r"value (\d+)|Char 0x([0-9A-Fa-f]+)", reason)
        code = int(number[1] or number[2], 10 if number[1] else 16) if number else 0
        reason = f"the character U+{code:04X} is not allowed in XML"
    elif reason == "Invalid bytes in character encoding":
        reason = "bytes that are invalid in the document's encoding (UTF-8 unless it declares another)"
    return not_well_formed(RDF_XML, reason, line, column)


def _has_doctype(root_name: str) -> NotWellFormed:
    page = " This looks like a web page." if root_name.lower() == "html" else ""
    return NotWellFormed(
        "The document has a DOCTYPE. MDV does not accept it, because entities can expand without limit or read files. "
        f"Remove the DOCTYPE, and replace its entities by their text.{page}"
    )


class _Scope(NamedTuple):
    """The context that an element inherits. `language_reset`: an inner xml:lang="" has removed an outer language."""

    depth: int = 1
    base: str = ""
    lang: str = ""
    language_reset: bool = False


class _Normaliser:
    """Check all elements against the RDF/XML grammar (node, property, node, …) and normalise them for the parser.

    Reports every element, attribute or text that the grammar does not allow. Normalises what the parser does not
    support: an attribute without a prefix gets the namespace of its element, as in the paper's Figure 1, unless XML
    reserves its name (`xml…`); the content of rdf:parseType="Literal" (or any unknown type) becomes canonical XML;
    xml:lang="" removes an outer language.
    """

    def __init__(self) -> None:
        self.flaws: list[Flaw] = []
        self.ids: set[tuple[str, str]] = set()

    def normalise(self, root: etree._Element) -> list[Flaw]:
        scope = self._enter(root, _Scope(depth=0))
        self._normalise_names(root)
        for name in root.attrib:
            if str(name).startswith("{") and not str(name).startswith((_XML, _XSI)):
                self._flaw(root, f"{_shown(name)} has no meaning on rdf:RDF", "put it on the element of a resource")
        self._no_text(root, "rdf:RDF")
        for child in root.iterchildren("{*}*"):
            self._node(child, scope)
        return self.flaws

    def _node(self, element: etree._Element, outer: _Scope) -> None:
        scope = self._enter(element, outer)
        if not self._normalise_names(element):
            return
        if element.tag in _NEVER_A_NODE:
            self._flaw(element, f"{_shown(element.tag)} cannot be the element of a resource")
        attributes = set(element.keys())
        subjects = sorted(attributes & {_ABOUT, _ID, _NODE_ID})
        if len(subjects) > 1:
            self._flaw(element, f"{' and '.join(map(_shown, subjects))} on one element", "a resource has one name")
        for name in sorted(attributes & {_RESOURCE, _PARSE_TYPE, _DATATYPE}):
            self._flaw(element, f"{_shown(name)} belongs on a property, but this element is a resource",
                       "name the resource with rdf:about" if name == _RESOURCE else None)  # fmt: skip
        self._identify(element, scope)
        self._property_attributes(element, scope)
        self._no_text(element, "a resource")
        for child in element.iterchildren("{*}*"):
            self._property(child, scope)

    def _property(self, element: etree._Element, outer: _Scope) -> None:
        if _is_plain(element) and outer.depth < MAX_DEPTH and not outer.language_reset:
            return
        scope = self._enter(element, outer)
        if not self._normalise_names(element):
            return
        if element.tag in _NEVER_A_PROPERTY:
            self._flaw(element, f"{_shown(element.tag)} cannot be a property")
        if element.get(_ABOUT) is not None:
            self._flaw(element, "rdf:about belongs on a resource, but this element is a property",
                       "to refer to a resource, write rdf:resource")  # fmt: skip
        self._identify(element, scope)
        children = list(element.iterchildren("{*}*"))
        attributes = self._property_attributes(element, scope)
        if element.keys():
            attributes += [str(name) for name in (_RESOURCE, _NODE_ID, _DATATYPE) if element.get(name) is not None]
        parse_type = element.get(_PARSE_TYPE)
        if parse_type is not None:
            if attributes:
                self._flaw(element, f"{_shown(attributes[0])} together with rdf:parseType", "remove one of them")
            self._parse_type(element, str(parse_type), children, scope)
            return
        has_text = bool((element.text or "").strip()) or any((child.tail or "").strip() for child in element)
        if len(attributes) > 1 and not {_RESOURCE, _NODE_ID, _DATATYPE}.isdisjoint(attributes):
            forms = [name for name in attributes if name in (_RESOURCE, _NODE_ID, _DATATYPE)]
            if len(forms) > 1 or _DATATYPE in forms:
                self._flaw(element, f"{' and '.join(map(_shown, attributes))} on one property", "it has one value")
        elif attributes and attributes != [_DATATYPE] and (children or has_text):
            self._flaw(element, f"{_shown(attributes[0])} on a property that also has content", "it has one value")
        elif attributes and children:
            self._flaw(element, "rdf:datatype on a property whose value is a resource")
        if children and has_text:
            self._flaw(element, "text and an element as one value", 'write rdf:parseType="Literal" for XML')
        if len(children) > 1:
            self._flaw(children[1], f"{len(children)} resources as one value of {_shown(element.tag)}",
                       "repeat the property for each")  # fmt: skip
        if scope.language_reset and not children and not attributes:
            element.set(_DATATYPE, XSD_STRING)
        for child in children:
            self._node(child, scope)

    def _parse_type(
        self, element: etree._Element, parse_type: str, children: list[etree._Element], scope: _Scope
    ) -> None:
        if parse_type in ("Resource", "Collection"):
            self._no_text(element, f'rdf:parseType="{parse_type}"')
            for child in children:
                (self._property if parse_type == "Resource" else self._node)(child, scope)
            return
        for child in children:
            self._enter_literal(child, scope)
        if not self.flaws:
            text = _canonical(element)
            for node in list(element):
                element.remove(node)
            element.text = text
            del element.attrib[_PARSE_TYPE]
            element.set(_DATATYPE, RDF + "XMLLiteral")

    def _enter(self, element: etree._Element, outer: _Scope) -> _Scope:
        depth, base, lang, language_reset = outer
        if depth + 1 > MAX_DEPTH:
            raise too_deep(RDF_XML, element.sourceline, None)
        if not element.keys():
            return _Scope(depth + 1, base, lang, language_reset)
        value = element.get(_BASE)
        if value is not None:
            base = _join(base, str(value))
        value = element.get(_LANG)
        if value == "":
            # The parser does not accept an empty language.
            del element.attrib[_LANG]
            language_reset = bool(lang) or language_reset
        elif value is not None:
            lang, language_reset = str(value), False
        return _Scope(depth + 1, base, lang, language_reset)

    def _enter_literal(self, element: etree._Element, outer: _Scope) -> None:
        if outer.depth + 1 > MAX_DEPTH:
            raise too_deep(RDF_XML, element.sourceline, None)
        for child in element.iterchildren("{*}*"):
            self._enter_literal(child, _Scope(outer.depth + 1))

    def _normalise_names(self, element: etree._Element) -> bool:
        """Add namespaces to attributes without a prefix. Return False if the element has errors that end its check."""
        namespace, _, local = str(element.tag).rpartition("}")
        namespace = namespace[1:]
        if not namespace:
            self._flaw(element, f"<{local}> is in no namespace",
                       'give it a prefix, or the document a default namespace: xmlns="…"')  # fmt: skip
            return False
        if len(element.attrib) > MAX_ATTRIBUTES:
            self._flaw(element, f"<{local}> has {len(element.attrib):,} attributes; the limit is {MAX_ATTRIBUTES:,}",
                       "write properties as elements")  # fmt: skip
            return False
        for attribute in list(map(str, element.keys())):
            if _is_reserved(element, attribute):
                del element.attrib[attribute]
                continue
            if attribute[0] == "{":
                continue
            if attribute in _SYNTAX_ATTRIBUTES:
                name = f"{{{RDF}}}{attribute}"
            elif namespace == RDF:
                self._flaw(element, f'{attribute}="…" has no prefix, and cannot take the namespace of <rdf:{local}>',
                           "add a prefix")  # fmt: skip
                continue
            else:
                name = f"{{{namespace}}}{attribute}"
            if name in element.attrib:
                self._flaw(element, f'{attribute}="…" is given twice, with a prefix and without',
                           "without a prefix it has the namespace of its element")  # fmt: skip
                continue
            element.set(name, element.attrib.pop(attribute))
        return True

    def _property_attributes(self, element: etree._Element, scope: _Scope) -> list[str]:
        names = map(str, element.keys())
        found = [name for name in names if name not in _SYNTAX_NAMES and not name.startswith(_XML)]
        for name in found:
            if name in _NEVER_AN_ATTRIBUTE:
                self._flaw(element, f"{_shown(name)} is not an attribute of RDF/XML")
        if found and scope.language_reset:
            self._flaw(element, f'xml:lang="" removes an outer language, which {_shown(found[0])} cannot express',
                       "write the property as an element")  # fmt: skip
        return found

    def _identify(self, element: etree._Element, scope: _Scope) -> None:
        if not element.keys():
            return
        for name in (_ID, _NODE_ID):
            identifier = element.get(name)
            if identifier is not None and not _NCNAME.fullmatch(identifier):
                self._flaw(element, f'{_shown(name)}="{identifier}" is not an XML name', 
                           "it must begin with a letter and have no spaces, colons or slashes")  # fmt: skip
        identifier = element.get(_ID)
        if identifier is None:
            return
        if (scope.base, identifier) in self.ids:
            self._flaw(element, f'rdf:ID="{identifier}" is used twice',
                       "an rdf:ID names one resource; use rdf:about to refer to it again")  # fmt: skip
        self.ids.add((scope.base, identifier))

    def _no_text(self, element: etree._Element, where: str) -> None:
        for text in (element.text, *(child.tail for child in element)):
            if text and text.strip():
                self._flaw(element, f"the text {text.strip()[:60]!r} is not allowed directly inside {where}",
                           "put it into the element of a property")  # fmt: skip

    def _flaw(self, element: etree._Element, message: str, hint: str | None = None) -> None:
        self.flaws.append(Flaw(message, line=element.sourceline, hint=hint))


def _is_plain(element: etree._Element) -> bool:
    """True if a property needs no further checks: a text, with or without a datatype, or a reference.

    Most properties are plain, so this makes the check fast.
    """
    if len(element) or element.tag in _NEVER_A_PROPERTY or element.tag[0] != "{":
        return False
    attributes = element.keys()
    if not attributes or attributes == [_DATATYPE]:
        return True
    return attributes == [_RESOURCE] and not (element.text and element.text.strip())


def _is_reserved(element: etree._Element, attribute: str) -> bool:
    """True if the name or prefix of an attribute begins with `xml`, except for attributes in the XML namespace.

    RDF/XML ignores such attributes (section 6.1.2), and those in the XML namespace except xml:lang and xml:base.
    """
    if attribute[0] != "{":
        return attribute[:3].lower() == "xml"
    if attribute in _SYNTAX_NAMES or attribute.startswith(_XML):
        return False
    namespace = attribute[1:].partition("}")[0]
    prefixes = [prefix for prefix, uri in element.nsmap.items() if uri == namespace and prefix is not None]
    return bool(prefixes) and all(prefix[:3].lower() == "xml" for prefix in prefixes)


def _canonical(element: etree._Element) -> str:
    """Return the content of `element` as exclusive canonical XML with comments, as RDF/XML requires."""
    wrapper = etree.Element("x")
    wrapper.text = element.text
    wrapper.extend(copy.deepcopy(node) for node in element)
    text = bytes(etree.tostring(wrapper, method="c14n", exclusive=True, with_comments=True)).decode()
    return text[len("<x>") : -len("</x>")]


def _join(base: str, relative: str) -> str:
    """Resolve `relative` against `base`, precisely enough to compare the bases of two elements."""
    try:
        return urldefrag(urljoin(base, relative)).url
    except ValueError:
        return relative


def _shown(name: object) -> str:
    text = str(name)
    return (
        "rdf:" + text[len(RDF) + 2 :]
        if text.startswith(f"{{{RDF}}}")
        else f"<{text.replace('{', '').replace('}', '')}>"
    )
