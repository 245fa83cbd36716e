"""Constants of `startswith` and `endswith`, and of their negations."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from alembic.util import CommandError

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None

OPERATORS = {"=": "eq", "!=": "ne", "<": "lt", "<=": "le", ">": "gt", ">=": "ge", "contains": "con",
             "not contains": "ncon"}  # fmt: skip
ADDED = {"startswith": "pre", "not startswith": "npre", "endswith": "suf", "not endswith": "nsuf"}
KEYS = {"pre": "left(value, 200)", "suf": "right(value, 200)"}


def upgrade() -> None:
    op.alter_column("rule_predicates", "operator", type_=sa.String(40), existing_nullable=False)
    for suffix in ADDED.values():
        _create_table(suffix)
    op.execute("drop view filter_rules_view")
    op.execute(f"create or replace view rule_constants as {_constants(OPERATORS | ADDED)}")
    # Figure 8 of the paper, for every operator.
    op.execute(
        "create view filter_rules_view as"
        " select p.operator, r.rule_id, p.class, p.property, coalesce(r.value, r.number::text) as value"
        " from rule_constants r join rule_predicates p using (predicate_id)"
    )


def downgrade() -> None:
    """Refuse to delete rules: rules with the new operators must be removed before."""
    rules = " union all ".join(f"select from filter_rules_{suffix}" for suffix in ADDED.values())
    if op.get_bind().execute(sa.text(f"select exists ({rules})")).scalar_one():
        raise CommandError("some rules use startswith or endswith, remove them before")
    unused = sa.text("delete from rule_predicates where operator = any (:operators)")
    op.get_bind().execute(unused, {"operators": list(ADDED)})
    op.execute("drop view filter_rules_view")
    op.execute("drop view rule_constants")
    op.execute(f"create view rule_constants as {_constants(OPERATORS)}")
    branches = [
        f"select '{operator}' as operator, rule_id, predicate_id, coalesce(value, number::text) as value"  # noqa: S608
        f" from filter_rules_{suffix}"
        for operator, suffix in OPERATORS.items()
    ]
    op.execute(
        "create view filter_rules_view as select r.operator, r.rule_id, p.class, p.property, r.value"  # noqa: S608
        f" from ({' union all '.join(branches)}) r join rule_predicates p using (predicate_id)"
    )
    for suffix in reversed(ADDED.values()):
        op.drop_table(f"filter_rules_{suffix}")
    op.alter_column("rule_predicates", "operator", type_=sa.String(12), existing_nullable=False)


def _constants(operators: dict[str, str]) -> str:
    branches = [
        f"select rule_id, predicate_id, number, value from filter_rules_{suffix}"  # noqa: S608
        for suffix in operators.values()
    ]
    return " union all ".join(branches)


def _create_table(suffix: str) -> None:
    name = f"filter_rules_{suffix}"
    op.create_table(
        name,
        sa.Column("rule_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("predicate_id", sa.Integer(), nullable=False),
        sa.Column(
            "number", sa.Numeric(), nullable=True, comment="a number, an instant in seconds, 1 or 0 for true or false"
        ),
        sa.Column("value", sa.Text(collation="C"), nullable=True, comment="a text or a URI"),
        sa.PrimaryKeyConstraint("rule_id"),
        comment=f"FilterRulesOP in the paper, for {suffix}: triggering rules with their constants.",
    )
    if suffix in KEYS:
        key = KEYS[suffix]
        op.create_index(f"{name}_key", name, ["predicate_id", sa.text(key)])
        op.create_index(f"{name}_length", name, ["predicate_id", sa.text(f"length({key})")])
    else:
        op.create_index(f"{name}_predicate", name, ["predicate_id"])
