"""The schema and the golden texts for the tests of RDFTL."""

from __future__ import annotations

from pathlib import Path

from mdv.errors import Flaw, InvalidRule
from mdv.rdf.schema import Schema
from mdv.rdftl.compile import compile_rules, compile_update
from tests.support.rule_schemas import schema_of

FOLDER = Path(__file__).parents[1] / "golden" / "rdftl"


def rdftl_schema() -> Schema:
    """The classes and properties of both papers, and a property of each kind."""
    return schema_of(FOLDER / "schema.ttl")


def outcome(path: Path) -> tuple[str, str]:
    """The suffix and the content of the file that states what becomes of a text: its normal form, or its error.

    An event is compiled as a rule that does nothing else.
    """
    text = path.read_text("utf-8")
    try:
        if path.suffix == ".update":
            update = compile_update(text, rdftl_schema())
            return ".normal", shown(update.normal, update.warnings)
        if path.suffix == ".event":
            text = f"ON {text}IF TRUE DO DELETE $delta"
        rules = compile_rules(text, rdftl_schema())
        return ".normal", ";;\n\n".join(shown(rule.normal, rule.warnings) for rule in rules)
    except InvalidRule as error:
        return ".error", error.detail + "\n"


def shown(normal: str, warnings: tuple[Flaw, ...]) -> str:
    return "".join([normal, "\n", *(f"# warning: {warning}\n" for warning in warnings)])
