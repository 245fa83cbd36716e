-- What pages show about event-condition-action rules.

-- name: find_rules
-- Rules whose name or text contains a text, in the order of their IDs.
select r.id, r.name, r.rule_set, r.state, r.reason, r.normal, coalesce(c.fired, 0), coalesce(c.failed, 0), c.last_fired
from eca_rules r left join eca_counts c on c.rule_id = r.id
where r.id > %(after)s::bigint
  and (%(state)s::text is null or r.state = %(state)s::text)
  and (%(rule_set)s::text is null or r.rule_set = %(rule_set)s::text)
  and (%(holding)s::text is null or strpos(lower(r.name), lower(%(holding)s::text)) > 0
       or strpos(lower(r.text), lower(%(holding)s::text)) > 0)
order by r.id limit %(limit)s::int;

-- name: list_document_insertions
-- The changes that inserted statements about these resources into a document, newest first.
select c.id, c.position, null, c.run_id, c.step, c.rule_id, c.rule_name, c.delta, c.is_added, c.document, c.subject,
       c.property, c.object
from eca_changes c
where c.subject = any (%(subjects)s) and c.document = %(document)s::text and c.is_added
order by c.id desc limit %(limit)s::int;
