"""Indexes that find one statement among many with the same resource, property, target or document."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

BEFORE = {
    "filter_data_resource": ["resource_id", "property_id"],
    "filter_data_history_document": ["document_id"],
    "filter_data_history_target": ["until_position", "target_id", "property_id"],
    "filter_data_history_past": ["resource_id", "until_position"],
}
AFTER = {
    "filter_data_resource": ["resource_id", "property_id", "hash"],
    "filter_data_history_document": ["document_id", "until_position"],
    "filter_data_history_target": ["until_position", "target_id", "property_id", "resource_id"],
    "filter_data_history_past": ["resource_id", "until_position", "property_id"],
}


def upgrade() -> None:
    _replace_indexes(AFTER)
    op.create_index(
        "filter_data_history_value",
        "filter_data_history",
        ["until_position", "property_id", sa.literal_column("left(value, 64)")],
        unique=False,
        postgresql_where=sa.text("value is not null"),
    )
    op.create_index(
        "filter_data_history_number",
        "filter_data_history",
        ["until_position", "property_id", "number"],
        unique=False,
        postgresql_where=sa.text("number is not null"),
    )


def downgrade() -> None:
    op.drop_index("filter_data_history_number", table_name="filter_data_history")
    op.drop_index("filter_data_history_value", table_name="filter_data_history")
    _replace_indexes(BEFORE)


def _replace_indexes(columns: Mapping[str, Sequence[str]]) -> None:
    for name, indexed in columns.items():
        table = "filter_data" if name == "filter_data_resource" else "filter_data_history"
        where = sa.text("target_id is not null") if "target_id" in indexed else None
        op.drop_index(name, table_name=table)
        op.create_index(name, table, list(indexed), unique=False, postgresql_where=where)
