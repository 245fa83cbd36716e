"""SQL that damages documents behind the MDP, to measure how soon a check finds them."""

from __future__ import annotations

from sqlalchemy import Engine, text

_DAMAGE = text(
    "update filter_data f set value = coalesce(f.value, '') || 'x' where f.ctid in"
    " (select min(f.ctid) from filter_data f join documents d on d.id = f.document_id"
    "  where d.uri = any (:uris) and f.value is not null group by f.document_id)"
)
_URIS = text("select uri from documents where present order by id limit :most offset :skipped")


def damage_documents(engine: Engine, count: int, skipped: int) -> list[str]:
    """Change one row of some documents. Return their URIs. `skipped`: how many documents are before the first."""
    with engine.begin() as connection:
        uris = list(connection.execute(_URIS, {"most": count, "skipped": skipped}).scalars())
        connection.execute(_DAMAGE, {"uris": uris})
    return uris
