"""Subscription rules, atomic rules, rule groups, constants, and the results of a filter run."""

from __future__ import annotations

from pathlib import Path

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "atomic_rules",
        sa.Column("rule_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column(
            "uses", sa.Integer(), nullable=False, comment="by join rules and by subscription rules that end here"
        ),
        sa.Column("group_id", sa.Integer(), nullable=True, comment="of a join rule"),
        sa.Column(
            "digest", sa.Uuid(), nullable=False, comment="of the text with full names: no two rules have the same"
        ),
        sa.Column(
            "class", sa.Text(collation="C"), nullable=False, comment="the rule's type: the class of what it registers"
        ),
        sa.Column("text", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("rule_id"),
        comment="The paper's AtomicRules: every triggering and join rule once.",
    )
    op.create_index("atomic_rules_digest", "atomic_rules", ["digest"], unique=True)
    op.create_table(
        "end_rules",
        sa.Column("rule_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column(
            "driver_id",
            sa.BigInteger(),
            nullable=True,
            comment="the triggering rule that finds it; NULL where it has no constant",
        ),
        sa.Column("group_id", sa.Integer(), nullable=False, comment="its whole group"),
        sa.Column(
            "leaves",
            postgresql.ARRAY(sa.BigInteger()),
            nullable=False,
            comment="its triggering rules, in the order of the pattern",
        ),
        sa.PrimaryKeyConstraint("rule_id"),
        comment="Atomic rules that some subscription rule ends in.",
    )
    op.create_index("end_rules_driver", "end_rules", ["driver_id", "group_id"], unique=False)
    op.create_index("end_rules_group", "end_rules", ["group_id", "rule_id"], unique=False)
    op.create_table(
        "filter_rules",
        sa.Column("rule_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("class", sa.Text(collation="C"), nullable=False),
        sa.PrimaryKeyConstraint("rule_id"),
        comment="The paper's FilterRules: triggering rules without a where part.",
    )
    op.create_table(
        "filter_rules_con",
        sa.Column("rule_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("predicate_id", sa.Integer(), nullable=False),
        sa.Column(
            "number", sa.Numeric(), nullable=True, comment="a number, an instant in seconds, 1 or 0 for true or false"
        ),
        sa.Column("value", sa.Text(collation="C"), nullable=True, comment="a text or a URI"),
        sa.Column(
            "gram",
            sa.Text(collation="C"),
            server_default=sa.text("''"),
            nullable=False,
            comment="a rare part of the constant, by which it is found; empty: it is always tried",
        ),
        sa.PrimaryKeyConstraint("rule_id"),
        comment="The paper's FilterRulesOP for con: triggering rules by their constants.",
    )
    op.create_index("filter_rules_con_gram", "filter_rules_con", ["predicate_id", "gram"], unique=False)
    op.create_table(
        "filter_rules_eq",
        sa.Column("rule_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("predicate_id", sa.Integer(), nullable=False),
        sa.Column(
            "number", sa.Numeric(), nullable=True, comment="a number, an instant in seconds, 1 or 0 for true or false"
        ),
        sa.Column("value", sa.Text(collation="C"), nullable=True, comment="a text or a URI"),
        sa.PrimaryKeyConstraint("rule_id"),
        comment="The paper's FilterRulesOP for eq: triggering rules by their constants.",
    )
    op.create_index(
        "filter_rules_eq_number",
        "filter_rules_eq",
        ["predicate_id", "number"],
        unique=False,
        postgresql_include=["rule_id"],
        postgresql_where=sa.text("number is not null"),
    )
    op.create_index(
        "filter_rules_eq_value",
        "filter_rules_eq",
        ["predicate_id", sa.literal_column("left(value, 200)")],
        unique=False,
        postgresql_where=sa.text("value is not null"),
    )
    op.create_table(
        "filter_rules_ge",
        sa.Column("rule_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("predicate_id", sa.Integer(), nullable=False),
        sa.Column(
            "number", sa.Numeric(), nullable=True, comment="a number, an instant in seconds, 1 or 0 for true or false"
        ),
        sa.Column("value", sa.Text(collation="C"), nullable=True, comment="a text or a URI"),
        sa.PrimaryKeyConstraint("rule_id"),
        comment="The paper's FilterRulesOP for ge: triggering rules by their constants.",
    )
    op.create_index(
        "filter_rules_ge_number",
        "filter_rules_ge",
        ["predicate_id", "number"],
        unique=False,
        postgresql_include=["rule_id"],
        postgresql_where=sa.text("number is not null"),
    )
    op.create_table(
        "filter_rules_gt",
        sa.Column("rule_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("predicate_id", sa.Integer(), nullable=False),
        sa.Column(
            "number", sa.Numeric(), nullable=True, comment="a number, an instant in seconds, 1 or 0 for true or false"
        ),
        sa.Column("value", sa.Text(collation="C"), nullable=True, comment="a text or a URI"),
        sa.PrimaryKeyConstraint("rule_id"),
        comment="The paper's FilterRulesOP for gt: triggering rules by their constants.",
    )
    op.create_index(
        "filter_rules_gt_number",
        "filter_rules_gt",
        ["predicate_id", "number"],
        unique=False,
        postgresql_include=["rule_id"],
        postgresql_where=sa.text("number is not null"),
    )
    op.create_table(
        "filter_rules_le",
        sa.Column("rule_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("predicate_id", sa.Integer(), nullable=False),
        sa.Column(
            "number", sa.Numeric(), nullable=True, comment="a number, an instant in seconds, 1 or 0 for true or false"
        ),
        sa.Column("value", sa.Text(collation="C"), nullable=True, comment="a text or a URI"),
        sa.PrimaryKeyConstraint("rule_id"),
        comment="The paper's FilterRulesOP for le: triggering rules by their constants.",
    )
    op.create_index(
        "filter_rules_le_number",
        "filter_rules_le",
        ["predicate_id", "number"],
        unique=False,
        postgresql_include=["rule_id"],
        postgresql_where=sa.text("number is not null"),
    )
    op.create_table(
        "filter_rules_lt",
        sa.Column("rule_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("predicate_id", sa.Integer(), nullable=False),
        sa.Column(
            "number", sa.Numeric(), nullable=True, comment="a number, an instant in seconds, 1 or 0 for true or false"
        ),
        sa.Column("value", sa.Text(collation="C"), nullable=True, comment="a text or a URI"),
        sa.PrimaryKeyConstraint("rule_id"),
        comment="The paper's FilterRulesOP for lt: triggering rules by their constants.",
    )
    op.create_index(
        "filter_rules_lt_number",
        "filter_rules_lt",
        ["predicate_id", "number"],
        unique=False,
        postgresql_include=["rule_id"],
        postgresql_where=sa.text("number is not null"),
    )
    op.create_table(
        "filter_rules_ncon",
        sa.Column("rule_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("predicate_id", sa.Integer(), nullable=False),
        sa.Column(
            "number", sa.Numeric(), nullable=True, comment="a number, an instant in seconds, 1 or 0 for true or false"
        ),
        sa.Column("value", sa.Text(collation="C"), nullable=True, comment="a text or a URI"),
        sa.PrimaryKeyConstraint("rule_id"),
        comment="The paper's FilterRulesOP for ncon: triggering rules by their constants.",
    )
    op.create_index("filter_rules_ncon_predicate", "filter_rules_ncon", ["predicate_id"], unique=False)
    op.create_table(
        "filter_rules_ne",
        sa.Column("rule_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("predicate_id", sa.Integer(), nullable=False),
        sa.Column(
            "number", sa.Numeric(), nullable=True, comment="a number, an instant in seconds, 1 or 0 for true or false"
        ),
        sa.Column("value", sa.Text(collation="C"), nullable=True, comment="a text or a URI"),
        sa.PrimaryKeyConstraint("rule_id"),
        comment="The paper's FilterRulesOP for ne: triggering rules by their constants.",
    )
    op.create_index(
        "filter_rules_ne_number",
        "filter_rules_ne",
        ["predicate_id", "number"],
        unique=False,
        postgresql_include=["rule_id"],
        postgresql_where=sa.text("number is not null"),
    )
    op.create_index(
        "filter_rules_ne_value",
        "filter_rules_ne",
        ["predicate_id", sa.literal_column("left(value, 200)")],
        unique=False,
        postgresql_where=sa.text("value is not null"),
    )
    op.create_table(
        "result_objects",
        sa.Column("rule_id", sa.BigInteger(), nullable=False, comment="an end rule"),
        sa.Column("resource_id", sa.BigInteger(), nullable=False),
        sa.Column(
            "matched", sa.Boolean(), nullable=False, comment="true: it matches and did not; false: it did and does not"
        ),
        comment="The paper's ResultObjects: what the last run of the filter found.",
        prefixes=["UNLOGGED"],
    )
    op.create_table(
        "result_ranges",
        sa.Column(
            "group_id", sa.Integer(), nullable=False, comment="a whole group with one constant, compared by order or !="
        ),
        sa.Column("resource_id", sa.BigInteger(), nullable=False),
        sa.Column("first_rule", sa.BigInteger(), nullable=False, comment="only end rules from this one on"),
        sa.Column("last_rule", sa.BigInteger(), nullable=True, comment="and up to this one"),
        sa.Column("gains", sa.Boolean(), nullable=False, comment="whether some rule came to match"),
        sa.Column("low_before", sa.Numeric(), nullable=True),
        sa.Column("high_before", sa.Numeric(), nullable=True),
        sa.Column("low_after", sa.Numeric(), nullable=True),
        sa.Column("high_after", sa.Numeric(), nullable=True),
        sa.Column("low_text_before", sa.Text(collation="C"), nullable=True),
        sa.Column("high_text_before", sa.Text(collation="C"), nullable=True),
        sa.Column("low_text_after", sa.Text(collation="C"), nullable=True),
        sa.Column("high_text_after", sa.Text(collation="C"), nullable=True),
        comment="What the last run found for rules that match stretches of constants: the least and the greatest value, before and after, from which the rules follow.",
        prefixes=["UNLOGGED"],
    )
    op.create_table(
        "rule_dependencies",
        sa.Column("source", sa.BigInteger(), nullable=False),
        sa.Column("target", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("param", sa.SmallInteger(), autoincrement=False, nullable=False, comment="which input of the target"),
        sa.Column("group_id", sa.Integer(), nullable=False, comment="the target's"),
        sa.PrimaryKeyConstraint("target", "param"),
        comment="The paper's RuleDependencies: the global dependency graph.",
    )
    op.create_index("rule_dependencies_source", "rule_dependencies", ["source"], unique=False)
    op.create_table(
        "rule_ends",
        sa.Column("rule_id", sa.BigInteger(), nullable=False),
        sa.Column("end_id", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("rule_id", "end_id"),
        comment="The atomic rules that produce the result of a subscription rule, one a conjunction.",
    )
    op.create_index("rule_ends_end", "rule_ends", ["end_id"], unique=False)
    op.create_table(
        "rule_groups",
        sa.Column("group_id", sa.Integer(), sa.Identity(always=False), nullable=False),
        sa.Column(
            "whole",
            sa.Boolean(),
            nullable=False,
            comment="true: of whole rules, evaluated at once; false: of join rules",
        ),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("digest", sa.Uuid(), nullable=False),
        sa.Column("members", sa.BigInteger(), nullable=False, comment="how many rules it has"),
        sa.Column(
            "pattern", postgresql.JSONB(astext_type=sa.Text()), nullable=False, comment="what its rules have in common"
        ),
        sa.Column(
            "driver",
            sa.SmallInteger(),
            nullable=True,
            comment="of a whole group: the leaf of the pattern that finds its rules",
        ),
        sa.Column(
            "chosen_at",
            sa.BigInteger(),
            server_default=sa.text("0"),
            nullable=False,
            comment="how many rules there were when the driver was chosen",
        ),
        sa.Column(
            "chosen_with", sa.BigInteger(), server_default=sa.text("0"), nullable=False, comment="how many resources"
        ),
        sa.PrimaryKeyConstraint("group_id"),
        sa.UniqueConstraint("whole", "digest", name="rule_groups_digest"),
        comment="The paper's RuleGroups: join rules with the same where part and classes; and whole rules that differ in their constants alone.",
    )
    op.create_table(
        "rule_predicates",
        sa.Column("predicate_id", sa.Integer(), sa.Identity(always=False), nullable=False),
        sa.Column("class", sa.Text(collation="C"), nullable=False),
        sa.Column("property", sa.Text(collation="C"), nullable=True, comment="NULL: the resource itself"),
        sa.Column("operator", sa.String(length=12), nullable=False),
        sa.Column(
            "sort",
            sa.String(length=9),
            nullable=False,
            comment="what is compared: numbers, instants, truths, text, references",
        ),
        sa.PrimaryKeyConstraint("predicate_id"),
        comment="What triggering rules with constants have in common but the constant.",
    )
    op.create_index(
        "rule_predicates_key",
        "rule_predicates",
        [sa.literal_column("md5(class)"), sa.literal_column("md5(coalesce(property, ''))"), "operator", "sort"],
        unique=True,
    )
    op.create_table(
        "rules",
        sa.Column("id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("owner", sa.BigInteger(), nullable=False, comment="whose rule it is: names are unique within"),
        sa.Column("name", sa.Text(collation="C"), nullable=True),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("position", sa.BigInteger(), nullable=False, comment="of the transaction that made it what it is"),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("owner", "name", name="rules_name"),
        comment="Subscription rules, as they were written.",
    )
    op.create_table(
        "rule_searches",
        sa.Column("rule_id", sa.BigInteger(), nullable=False),
        sa.Column("searched_id", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["rule_id"],
            ["rules.id"],
        ),
        sa.ForeignKeyConstraint(
            ["searched_id"],
            ["rules.id"],
        ),
        sa.PrimaryKeyConstraint("rule_id", "searched_id"),
        comment="Rules that search other rules: those cannot vanish under them.",
    )
    op.create_index(op.f("ix_rule_searches_searched_id"), "rule_searches", ["searched_id"], unique=False)
    op.drop_constraint(op.f("document_versions_document_id_fkey"), "document_versions", type_="foreignkey")
    op.create_index(
        "filter_data_number",
        "filter_data",
        ["property_id", "number"],
        unique=False,
        postgresql_where=sa.text("number is not null"),
    )
    op.create_index(
        "filter_data_value",
        "filter_data",
        ["property_id", sa.literal_column("left(value, 64)")],
        unique=False,
        postgresql_where=sa.text("value is not null"),
    )
    op.add_column(
        "filter_data_history",
        sa.Column(
            "number", sa.Numeric(), nullable=True, comment="the value as a number, where the schema says that it is one"
        ),
    )
    op.add_column(
        "filter_data_history", sa.Column("instant", sa.Numeric(), nullable=True, comment="likewise, seconds since 1970")
    )
    op.add_column("filter_data_history", sa.Column("truth", sa.Boolean(), nullable=True, comment="likewise"))
    op.drop_index(op.f("filter_data_history_until"), table_name="filter_data_history")
    op.create_index(
        "filter_data_history_resource",
        "filter_data_history",
        ["until_position", "resource_id", "property_id"],
        unique=False,
    )
    op.create_index(
        "filter_data_history_target",
        "filter_data_history",
        ["until_position", "target_id", "property_id"],
        unique=False,
        postgresql_where=sa.text("target_id is not null"),
    )
    op.add_column(
        "mdp_state",
        sa.Column("last_rule", sa.BigInteger(), server_default=sa.text("0"), nullable=False, comment="likewise"),
    )
    op.add_column(
        "mdp_state",
        sa.Column("last_atomic_rule", sa.BigInteger(), server_default=sa.text("0"), nullable=False, comment="likewise"),
    )
    op.add_column(
        "mdp_state",
        sa.Column(
            "graph_version",
            sa.BigInteger(),
            server_default=sa.text("0"),
            nullable=False,
            comment="another one whenever rule groups change: who remembers them reads them again",
        ),
    )
    op.alter_column(
        "transactions",
        "cause",
        existing_type=sa.TEXT(),
        comment="documents, schema or rules",
        existing_comment="documents or schema",
        existing_nullable=False,
    )

    views = (Path(__file__).parents[1] / "sql" / "0002_views.sql").read_text("utf-8")
    op.get_bind().exec_driver_sql(views)


def downgrade() -> None:
    op.execute("drop function mdv_grams")
    op.execute("drop view filter_rules_view")
    op.alter_column(
        "transactions",
        "cause",
        existing_type=sa.TEXT(),
        comment="documents or schema",
        existing_comment="documents, schema or rules",
        existing_nullable=False,
    )
    op.drop_column("mdp_state", "graph_version")
    op.drop_column("mdp_state", "last_atomic_rule")
    op.drop_column("mdp_state", "last_rule")
    op.drop_index(
        "filter_data_history_target",
        table_name="filter_data_history",
        postgresql_where=sa.text("target_id is not null"),
    )
    op.drop_index("filter_data_history_resource", table_name="filter_data_history")
    op.create_index(op.f("filter_data_history_until"), "filter_data_history", ["until_position"], unique=False)
    op.drop_column("filter_data_history", "truth")
    op.drop_column("filter_data_history", "instant")
    op.drop_column("filter_data_history", "number")
    op.drop_index("filter_data_value", table_name="filter_data", postgresql_where=sa.text("value is not null"))
    op.drop_index("filter_data_number", table_name="filter_data", postgresql_where=sa.text("number is not null"))
    op.create_foreign_key(
        op.f("document_versions_document_id_fkey"), "document_versions", "documents", ["document_id"], ["id"]
    )
    op.drop_index(op.f("ix_rule_searches_searched_id"), table_name="rule_searches")
    op.drop_table("rule_searches")
    op.drop_table("rules")
    op.drop_index("rule_predicates_key", table_name="rule_predicates")
    op.drop_table("rule_predicates")
    op.drop_table("rule_groups")
    op.drop_index("rule_ends_end", table_name="rule_ends")
    op.drop_table("rule_ends")
    op.drop_index("rule_dependencies_source", table_name="rule_dependencies")
    op.drop_table("rule_dependencies")
    op.drop_table("result_ranges")
    op.drop_table("result_objects")
    op.drop_index("filter_rules_ne_value", table_name="filter_rules_ne", postgresql_where=sa.text("value is not null"))
    op.drop_index(
        "filter_rules_ne_number",
        table_name="filter_rules_ne",
        postgresql_include=["rule_id"],
        postgresql_where=sa.text("number is not null"),
    )
    op.drop_table("filter_rules_ne")
    op.drop_index("filter_rules_ncon_predicate", table_name="filter_rules_ncon")
    op.drop_table("filter_rules_ncon")
    op.drop_index(
        "filter_rules_lt_number",
        table_name="filter_rules_lt",
        postgresql_include=["rule_id"],
        postgresql_where=sa.text("number is not null"),
    )
    op.drop_table("filter_rules_lt")
    op.drop_index(
        "filter_rules_le_number",
        table_name="filter_rules_le",
        postgresql_include=["rule_id"],
        postgresql_where=sa.text("number is not null"),
    )
    op.drop_table("filter_rules_le")
    op.drop_index(
        "filter_rules_gt_number",
        table_name="filter_rules_gt",
        postgresql_include=["rule_id"],
        postgresql_where=sa.text("number is not null"),
    )
    op.drop_table("filter_rules_gt")
    op.drop_index(
        "filter_rules_ge_number",
        table_name="filter_rules_ge",
        postgresql_include=["rule_id"],
        postgresql_where=sa.text("number is not null"),
    )
    op.drop_table("filter_rules_ge")
    op.drop_index("filter_rules_eq_value", table_name="filter_rules_eq", postgresql_where=sa.text("value is not null"))
    op.drop_index(
        "filter_rules_eq_number",
        table_name="filter_rules_eq",
        postgresql_include=["rule_id"],
        postgresql_where=sa.text("number is not null"),
    )
    op.drop_table("filter_rules_eq")
    op.drop_index("filter_rules_con_gram", table_name="filter_rules_con")
    op.drop_table("filter_rules_con")
    op.drop_table("filter_rules")
    op.drop_index("end_rules_group", table_name="end_rules")
    op.drop_index("end_rules_driver", table_name="end_rules")
    op.drop_table("end_rules")
    op.drop_index("atomic_rules_digest", table_name="atomic_rules")
    op.drop_table("atomic_rules")
