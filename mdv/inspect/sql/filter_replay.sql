-- Reads the graph of atomic rules like the filter of the paper: from rules that matched to the rules that use them. Run by
-- filter_replay.py.

-- name: described
-- The resources that a document describes.
select distinct resource_id from filter_data where document_id = %(document)s order by resource_id limit %(most)s;

-- name: types
-- The direct classes of these resources.
select distinct f.resource_id, r.uri from filter_data f join resources r on r.id = f.target_id
where f.resource_id = any (%(resources)s::bigint[]) and f.property_id = any (%(types)s::int[]);

-- name: properties
-- The properties of these resources.
select distinct property_id from filter_data where resource_id = any (%(resources)s::bigint[]);

-- name: plain
-- Triggering rules without a where part.
select rule_id, class from filter_rules;

-- name: join_groups
select group_id, pattern from rule_groups where not whole;

-- name: uses
-- The groups of join rules that have these rules as inputs, and the number of the input.
select distinct group_id, param, source from rule_dependencies where source = any (%(rules)s::bigint[]);

-- name: climb
-- The join rules that a resource which matches all of these rules may match, judged by the inputs that are this resource.
select d.target
from rule_dependencies d
join jsonb_to_recordset(%(own)s::jsonb) as o (group_id int, param int, inputs int)
    on o.group_id = d.group_id and o.param = d.param
where d.source = any (%(rules)s::bigint[])
group by d.target, o.inputs having count(*) = o.inputs;

-- name: candidates
-- The join rules whose inputs are all among `allowed`, and at least one among `fresh`.
select d.target
from rule_dependencies d
join jsonb_to_recordset(%(groups)s::jsonb) as g (group_id int, inputs int) on g.group_id = d.group_id
where d.source = any (%(allowed)s::bigint[])
group by d.target, g.inputs
having count(*) = g.inputs and bool_or(d.source = any (%(fresh)s::bigint[]))
order by d.target limit %(most)s;

-- name: all_uses
-- The join rules with at least one input among `fresh`.
select distinct target from rule_dependencies where source = any (%(fresh)s::bigint[]) order by target limit %(most)s;

-- name: below
-- All direct and indirect inputs of these join rules.
with recursive tree as (
    select target, param, source, group_id from rule_dependencies where target = any (%(rules)s::bigint[])
    union
    select d.target, d.param, d.source, d.group_id from tree t join rule_dependencies d on d.target = t.source)
select target, param, source, group_id from tree order by target, param;

-- name: constants
-- The constants of these triggering rules.
select rule_id, predicate_id, number, value from rule_constants where rule_id = any (%(rules)s::bigint[]);

-- name: texts
select rule_id, class, text from atomic_rules where rule_id = any (%(rules)s::bigint[]);

-- name: ends
-- Those of these rules that are end rules.
select rule_id from end_rules where rule_id = any (%(rules)s::bigint[]);

-- name: uris
select id, uri from resources where id = any (%(resources)s::bigint[]);
