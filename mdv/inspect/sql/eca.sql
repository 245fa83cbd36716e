-- Runs of event-condition-action rules, and the changes that rules made.

-- name: count_rules
-- How many rules there are in each state.
select state, count(*) from eca_rules group by state order by state;

-- name: list_sets
-- The rule sets, with the number of rules of each.
select rule_set, count(*) from eca_rules group by rule_set order by rule_set limit %(limit)s::int;

-- name: list_runs
-- Runs, newest first. With a rule: those in which it changed something.
select id, position, at, cause, subject, outcome, fired, changed_by, parent_run, parent_copy, compensated from eca_runs
where id < %(before)s::bigint
  and (%(position)s::bigint is null or position = %(position)s::bigint)
  and (%(outcome)s::text is null or outcome = %(outcome)s::text)
  and (%(rule)s::bigint is null or id in (select c.run_id from eca_changes c where c.rule_id = %(rule)s::bigint))
order by id desc limit %(limit)s::int;

-- name: read_run
select id, position, at, cause, subject, outcome, fired, changed_by, parent_run, parent_copy, compensated, trace
from eca_runs where id = %(id)s::bigint;

-- name: list_changes
-- Changes that rules and updates made, newest first.
select c.id, c.position, t.at, c.run_id, c.step, c.rule_id, c.rule_name, c.delta, c.is_added, c.document, c.subject,
       c.property, c.object
from eca_changes c left join transactions t on t.position = c.position
where c.id < %(before)s::bigint
  and (%(resource)s::text is null or c.subject = %(resource)s::text)
  and (%(rule)s::bigint is null or c.rule_id = %(rule)s::bigint)
  and (%(document)s::text is null or c.document = %(document)s::text)
  and (%(run)s::bigint is null or c.run_id = %(run)s::bigint)
order by c.id desc limit %(limit)s::int;

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
