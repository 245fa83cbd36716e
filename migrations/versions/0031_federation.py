"""Federations: what an MDP is in one, its links, messages, records, and the journal of its transactions."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0031"
down_revision = "0030"
branch_labels = None
depends_on = None


def _now(name: str) -> sa.Column[Any]:
    return sa.Column(name, sa.DateTime(timezone=True), nullable=False, server_default=sa.func.now())


def _number(name: str, comment: str | None = None) -> sa.Column[Any]:
    return sa.Column(name, sa.BigInteger(), nullable=False, server_default=sa.text("0"), comment=comment)


def upgrade() -> None:
    op.add_column(
        "mdp_state",
        sa.Column(
            "federated",
            sa.SmallInteger(),
            nullable=False,
            server_default=sa.text("0"),
            comment="1 if the MDP is in a federation, so that its changes are recorded for it",
        ),
    )
    op.create_table(
        "federation",
        sa.Column(
            "one", sa.Boolean(), primary_key=True, server_default=sa.text("true"), comment="there is one row at most"
        ),
        sa.Column("name", sa.Text(), nullable=False, comment="of this superpeer or peer"),
        sa.Column("superpeer", sa.Text(), comment="of this peer; NULL: it is a superpeer"),
        sa.Column("url", sa.Text(), nullable=False, comment="where others find it; empty if they cannot"),
        sa.Column("private_key", sa.LargeBinary(), nullable=False, comment="Ed25519 key that signs its requests"),
        sa.Column("epoch", sa.Text(), nullable=False, comment="of mdp_state, as the links know it"),
        _number("generation", "changes with the records"),
        sa.Column(
            "schema_version",
            sa.Integer(),
            nullable=False,
            server_default=sa.text("0"),
            comment="that its indexes are of",
        ),
        sa.Column(
            "grants",
            postgresql.JSONB(),
            nullable=False,
            server_default=sa.text("'[]'"),
            comment="[[kind, name, privilege], …]",
        ),
        sa.Column(
            "leaving",
            sa.Boolean(),
            nullable=False,
            server_default=sa.text("false"),
            comment="its last messages are sent",
        ),
        sa.Column("error", sa.Text(), comment="why the next message cannot be handled"),
        _now("at"),
        comment="What this MDP is in a federation.",
    )
    op.create_table(
        "federation_links",
        sa.Column("name", sa.Text(), primary_key=True, comment="of the neighbour"),
        sa.Column("is_superpeer", sa.Boolean(), nullable=False, comment="false: a peer"),
        sa.Column("url", sa.Text(), comment="where this MDP calls it; NULL: it calls"),
        sa.Column("public_key", sa.Text(), nullable=False, comment="Ed25519 key of its requests"),
        sa.Column("peer_epoch", sa.Text()),
        _number("acknowledged", "the last message that it has"),
        _number("received", "the last message of it"),
        sa.Column(
            "last_exchange",
            sa.Float(),
            nullable=False,
            server_default=sa.text("0"),
            comment="in seconds since 1970",
        ),
        sa.Column("error", sa.Text(), comment="why the last call of it failed"),
        comment="The links to neighbouring superpeers and to peers.",
    )
    op.create_table(
        "federation_inbox",
        sa.Column("number", sa.BigInteger(), sa.Identity(), primary_key=True),
        sa.Column("kind", sa.Text(), nullable=False, comment="message, or an event of the MDP itself: change, rule, …"),
        sa.Column("neighbour", sa.Text(), nullable=False, server_default=sa.text("''")),
        sa.Column("body", sa.Text(), nullable=False, comment="JSON; see mdv/federation/encode.py"),
        _now("at"),
        comment="What the federation process has not handled. A row is deleted in the transaction of its effect.",
    )
    op.create_table(
        "federation_outbox",
        sa.Column("number", sa.BigInteger(), sa.Identity(), primary_key=True),
        sa.Column("neighbour", sa.Text(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False, comment="JSON; see mdv/federation/encode.py"),
        comment="Messages that neighbours have not acknowledged.",
    )
    op.create_index("federation_outbox_neighbour", "federation_outbox", ["neighbour", "number"])
    op.create_table(
        "federation_records",
        sa.Column("part", sa.Text(), primary_key=True, comment="a field of the state of the superpeer"),
        sa.Column("digest", sa.LargeBinary(), primary_key=True, comment="of the key, which may be long"),
        sa.Column("key", sa.Text(), nullable=False, comment="JSON"),
        sa.Column("value", sa.Text(), nullable=False, comment="JSON; see mdv/federation/records.py"),
        _now("at"),
        _now("changed_at"),
        comment="The state of a superpeer: rules, indexes, transactions, copies, ….",
    )
    op.create_table(
        "federation_journal",
        sa.Column("transaction", sa.Text(), primary_key=True, comment="of the federation"),
        sa.Column("step", sa.Integer(), primary_key=True, autoincrement=False, comment="the number of the action"),
        sa.Column("position", sa.BigInteger(), nullable=False),
        sa.Column(
            "changes", postgresql.JSONB(), nullable=False, comment="[[document, removed, added], …], for compensation"
        ),
        _now("at"),
        comment="What the transactions of a federation have changed at this MDP.",
    )
    op.create_table(
        "federation_presence",
        sa.Column("node", sa.Text(), primary_key=True, comment="a class or property"),
        sa.Column("arcs", sa.BigInteger(), nullable=False, comment="number of arcs of it in the closure"),
        comment="What this MDP has data of, in a federation.",
    )
    op.create_table(
        "federation_invitations",
        sa.Column("digest", sa.LargeBinary(), primary_key=True, comment="of the code"),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        comment="Codes with which an MDP can join once.",
    )


TABLES = (
    "federation", "federation_links", "federation_inbox", "federation_outbox", "federation_records",
    "federation_journal", "federation_presence", "federation_invitations",
)  # fmt: skip


def downgrade() -> None:
    for table in TABLES:
        op.drop_table(table)
    op.drop_column("mdp_state", "federated")
