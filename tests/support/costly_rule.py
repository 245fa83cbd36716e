"""A rule whose evaluation takes cubic time, and its schema."""

from __future__ import annotations

SCHEMA = """:N a rdfs:Class .
:txt rdfs:range xsd:string ; mdv:setValued true .
:num rdfs:range xsd:integer ; mdv:setValued true .
:other rdfs:range xsd:integer .
"""


EXPLOSIVE = (
    "search N a, N b, N c, N d register a"
    " where a.txt? = b.txt? and b.txt? = c.txt? and c.txt? = d.txt? and a.num? < d.other"
)
"""With n resources that have the same text and no smaller number, n^3 combinations are tried for each."""
