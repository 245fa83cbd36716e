"""Actions of ReAL as documents."""

from __future__ import annotations

from mdv.real.vocabulary import INPUT_SIGNATURE, LRM, LRM_BODY, OUTPUT_SIGNATURE, REAL_CODE

DECLARED = "".join(
    f"<{name}> a rdf:Property ; mdv:setValued true .\n"
    for name in (INPUT_SIGNATURE, OUTPUT_SIGNATURE, LRM_BODY, REAL_CODE)
)
"""The terms of actions, for schemas of tests."""


def action_turtle(iri: str, code: str, inputs: str = "", outputs: str = "") -> str:
    """Return an action as Turtle.

    >>> print(action_turtle("http://a/act", "TRUE", "x"))
    <http://a/act> a <http://xrce.xerox.com/LRM#Action> ;
        <http://xrce.xerox.com/LRM#input-signature> "x" ;
        <http://xrce.xerox.com/LRM#body> [ <http://xrce.xerox.com/ReAL#code> '''TRUE''' ] .
    """
    parts = [f"<{iri}> a <{LRM}Action>"]
    parts += [f'<{name}> "{text}"' for name, text in ((INPUT_SIGNATURE, inputs), (OUTPUT_SIGNATURE, outputs)) if text]
    parts.append(f"<{LRM_BODY}> [ <{REAL_CODE}> '''{code}''' ] .")
    return " ;\n    ".join(parts)
