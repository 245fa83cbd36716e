-- Runs of event-condition-action rules, and the changes that rules made.

-- name: count_rules
-- How many rules there are in each state.
select state, count(*) from eca_rules group by state order by state;

-- name: list_sets
-- The rule sets, with the number of rules of each.
select rule_set, count(*) from eca_rules group by rule_set order by rule_set limit %(limit)s::int;

-- name: read_run
select id, position, at, cause, subject, outcome, fired, changed_by, parent_run, parent_copy, compensated, trace
from eca_runs where id = %(id)s::bigint;

-- name: list_insertions
-- The changes that inserted statements of a resource that are still there, newest first.
with held as materialized (
    select distinct f.document_id, f.position from filter_data f
    where f.resource_id = (select r.id from resources r where r.uri = %(resource)s::text)
    limit %(limit)s::int
)
select c.id, c.position, t.at, c.run_id, c.step, c.rule_id, c.rule_name, c.delta, c.is_added, c.document, c.subject,
       c.property, c.object
from held h
join documents d on d.id = h.document_id
join eca_changes c on c.position = h.position and c.subject = %(resource)s::text and c.document = d.uri
left join transactions t on t.position = c.position
where c.is_added
order by c.id desc limit %(limit)s::int;
