"""Resolve the names of a rule or update: classes and properties in the schema, resources against BASE."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches

from mdv.errors import InvalidRule
from mdv.model import XSD_STRING
from mdv.rdf.parse import is_absolute_iri
from mdv.rdf.schema import Schema, SchemaProperty, UnknownName
from mdv.rdftl.model import ConstantValue
from mdv.rdftl.syntax import NameForm, WrittenArc, WrittenConstant, WrittenName, WrittenPreamble
from mdv.rules.ast import Span
from mdv.rules.text_errors import Mark, quoted, rule_errors

MAX_FLAWS = 20
"""Flaws of a text that are reported. The search for similar names takes time."""

_SEPARATORS = ("#", "/", ":")


class FlawReport:
    """Collects the flaws and warnings of a text."""

    def __init__(self, text: str, what: str) -> None:
        self.text, self.what = text, what
        self.flaws: list[Mark] = []
        self.warnings: list[Mark] = []

    def flaw(self, span: Span, message: str, hint: str | None = None) -> None:
        self.flaws.append(Mark(span, message, hint))
        if len(self.flaws) == MAX_FLAWS:
            raise self.error()

    def warn(self, span: Span, message: str, hint: str | None = None) -> None:
        self.warnings.append(Mark(span, message, hint))

    def error(self) -> InvalidRule:
        """Return the error for all flaws so far."""
        return rule_errors(self.text, self.flaws, self.what)


class RuleNames:
    """Resolves the names of one rule or update. Reports names that it cannot resolve, and returns None for them."""

    def __init__(self, schema: Schema, preamble: WrittenPreamble, report: FlawReport) -> None:
        self.schema, self.report = schema, report
        self.prefixes: Mapping[str, str] = schema.prefixes
        self.base = schema.prefixes.get("", "")
        if preamble.namespaces:
            own = {prefix.text: self._absolute(uri) for prefix, uri in preamble.namespaces}
            self.prefixes = {**schema.prefixes, **own}
        if preamble.base is not None:
            self.base = self._absolute(preamble.base)

    def _absolute(self, name: WrittenName) -> str:
        if not is_absolute_iri(name.text):
            self.report.flaw(name.span, f"{quoted(name.text)} is not an absolute URI", "write it in full: <http://…>")
        return name.text

    # Classes and properties

    def class_iri(self, name: WrittenName, namespace: WrittenName | None = None) -> str | None:
        """Return the IRI of a class."""
        schema = self.schema
        return self._term(name, namespace, "class", schema.classes, schema.resolve_class, schema.nearest_classes)

    def property(self, arc: WrittenArc) -> SchemaProperty | None:
        """Return the property of an arc that has a name."""
        schema = self.schema
        assert arc.name is not None
        iri = self._term(
            arc.name, arc.namespace, "property", schema.properties, schema.resolve_property, schema.nearest_properties
        )
        return None if iri is None else schema.property_of(iri)

    def _term(
        self,
        name: WrittenName,
        namespace: WrittenName | None,
        kind: str,
        declared: Mapping[str, object],
        resolve: Callable[[str], str],
        nearest: Callable[[str], tuple[str, ...]],
    ) -> str | None:
        candidates = self._candidates(name, namespace)
        if candidates is None:
            return None
        for iri in candidates:
            # `rdf:_1` and the like are properties, but not listed.
            if iri in declared or (kind == "property" and self.schema.property_of(iri) is not None):
                return iri
        if not candidates:
            try:
                return resolve(name.text)
            except UnknownName as unknown:
                if unknown.ambiguous:
                    names = " or ".join(unknown.ambiguous)
                    self.report.flaw(name.span, f"ambiguous {kind} {quoted(name.text)}", f"write {names}")
                    return None
        similar = _ignoring_case(name.text, candidates, declared)
        if len(similar) == 1:
            short = self.schema.shorten(similar[0])
            self.report.warn(name.span, f"{quoted(name.text)} is read as {short}, which differs in case")
            return similar[0]
        near = nearest(name.text)
        hint = f"did you mean {' or '.join(near)}?" if near else None
        self.report.flaw(name.span, f"unknown {kind} {quoted(name.text)}", hint)
        return None

    def _candidates(self, name: WrittenName, namespace: WrittenName | None) -> list[str] | None:
        """Return the IRIs that the name can stand for; none for a bare word; None if its namespace is unknown."""
        if name.form is NameForm.IRI:
            return [name.text]
        if namespace is not None:
            uri = self._namespace(namespace)
            return None if uri is None else _joined(uri, name.text)
        prefix, colon, local = name.text.partition(":")
        if not colon:
            return []
        found = _joined(self.prefixes[prefix], local) if prefix in self.prefixes else []
        if name.form is NameForm.QUOTED and is_absolute_iri(name.text):
            found.append(name.text)
        if not found:
            self._unknown_prefix(name.span, prefix)
            return None
        return found

    def _namespace(self, name: WrittenName) -> str | None:
        if name.text in self.prefixes and name.form is not NameForm.IRI:
            return self.prefixes[name.text]
        if name.form is not NameForm.BARE:
            return self._absolute(name)
        self._unknown_prefix(name.span, name.text)
        return None

    def _unknown_prefix(self, span: Span, prefix: str) -> None:
        near = get_close_matches(prefix[:80], [one for one in self.prefixes if one], 1)
        hint = f"did you mean {near[0]}?" if near else f"declare it: USING NAMESPACE {prefix[:40]} <http://…>"
        self.report.flaw(span, f"unknown namespace {quoted(prefix)}", hint)

    # Resources and constants

    def resource(self, name: WrittenName, namespace: WrittenName | None = None) -> str | None:
        """Return the URI of a resource."""
        uri = self._resource(name, namespace)
        if uri is not None and not is_absolute_iri(uri):
            self.report.flaw(name.span, f"{quoted(uri)} is not a URI")
            return None
        return uri

    def _resource(self, name: WrittenName, namespace: WrittenName | None) -> str | None:
        if name.form is NameForm.IRI:
            return self._absolute(name)
        if namespace is not None:
            within = self._namespace(namespace)
            return None if within is None else within + name.text
        prefix, colon, local = name.text.partition(":")
        if colon and name.form is NameForm.BARE and prefix in self.prefixes and not local.startswith("//"):
            return self.prefixes[prefix] + local
        if is_absolute_iri(name.text):
            return name.text
        if colon and name.form is NameForm.BARE:
            self._unknown_prefix(name.span, prefix)
            return None
        if not self.base:
            hint = "write the URI in full, or BASE <http://…> at the start"
            self.report.flaw(name.span, f"{quoted(name.text)} is a relative name, and there is no BASE", hint)
            return None
        return self.base + name.text

    def constant(self, text: str) -> ConstantValue:
        """Return a constant without language and datatype."""
        return ConstantValue(text, text if is_absolute_iri(text) else self.base + text)

    def literal(self, written: WrittenConstant) -> ConstantValue:
        """Return a written constant."""
        plain = self.constant(written.text)
        datatype = None
        if written.datatype is not None:
            datatype = self._datatype(written.datatype)
        return ConstantValue(plain.text, plain.uri, written.lang, None if datatype == XSD_STRING else datatype)

    def _datatype(self, name: WrittenName) -> str | None:
        if name.form is NameForm.IRI:
            return self._absolute(name)
        prefix, _, local = name.text.partition(":")
        if prefix not in self.prefixes:
            self._unknown_prefix(name.span, prefix)
            return None
        return self.prefixes[prefix] + local


def _joined(namespace: str, local: str) -> list[str]:
    """Return the IRIs of a name in a namespace. A namespace can be written without its last character."""
    separators = [""] if namespace.endswith(_SEPARATORS) else ["", "#", "/"]
    return [namespace + separator + local for separator in separators]


def _ignoring_case(text: str, candidates: Iterable[str], declared: Iterable[str]) -> list[str]:
    folded = {iri.casefold() for iri in candidates}
    if folded:
        return [iri for iri in declared if iri.casefold() in folded]
    ends = tuple(separator + text.casefold() for separator in _SEPARATORS)
    return [iri for iri in declared if iri.casefold().endswith(ends)]
