"""SQL of `mdv bench eca`: what rules inserted, and a table with one trigger for each rule."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection, text

TRIGGER_ROW = text("""
insert into trigger_statements (subject, property, value)
values (:uri, 'type', 'LearningObject'), (:uri, 'title', 'Unit'), (:uri, 'subject', :subject), (:uri, 'level', '1')
""")
"""The statements of one learning object."""


def count_document_statements(connection: Connection, uri: str) -> int:
    """Return the number of statements of a document."""
    asked = text("select count(*) from filter_data f join documents d on d.id = f.document_id where d.uri = :uri")
    return int(connection.execute(asked, {"uri": uri}).scalar_one())


def create_trigger_table(connection: Connection) -> None:
    """Create a table of statements, and one for what triggers insert."""
    connection.execute(text("create table trigger_statements (subject text, property text, value text)"))
    connection.execute(text("create index on trigger_statements (subject, property)"))
    connection.execute(text("create table trigger_inbox (owner text, subject text)"))


def create_triggers(connection: Connection, subjects: Sequence[str]) -> None:
    """Create a trigger for each subject. It is the same rule as that of MDV."""
    for number, subject in enumerate(subjects):
        connection.exec_driver_sql(f"""
create function notify_{number}() returns trigger language plpgsql as $$ begin
  insert into trigger_inbox
  select 'user{number}', n.subject from new_rows n
  where n.property = 'type' and n.value = 'LearningObject' and exists (
    select from trigger_statements s
    where s.subject = n.subject and s.property = 'subject' and s.value = '{subject}');
  return null;
end $$""")  # noqa: S608 - numbers and subjects of the benchmark
        connection.exec_driver_sql(
            f"create trigger notify_{number} after insert on trigger_statements referencing new table as new_rows"
            f" for each statement execute function notify_{number}()"
        )


def count_inbox(connection: Connection) -> int:
    """Return how many rows triggers have inserted."""
    return int(connection.execute(text("select count(*) from trigger_inbox")).scalar_one())
