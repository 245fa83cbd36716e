-- The graph of atomic rules, read and changed by mdv/db/rule_graph.py. Each statement works on any number of rules. Long
-- lists are passed as JSON, which the client writes several times faster than an array.

-- name: find_atomic_rules
-- Those of these atomic rules that exist, and whether they are end rules.
select replace(digest::text, '-', ''), rule_id, exists (select from end_rules e where e.rule_id = a.rule_id)
from atomic_rules a where digest = any (%(digests)s::uuid[]);

-- name: count_uses
update atomic_rules a set uses = a.uses + u.more
from jsonb_to_recordset(%(uses)s::jsonb) as u (rule_id bigint, more int)
where a.rule_id = u.rule_id;

-- name: read_group_keys
-- The key of each group, its ID and its driving predicate.
select whole, replace(digest::text, '-', ''), group_id, driver from rule_groups;

-- name: add_group
insert into rule_groups (whole, text, digest, members, pattern)
values (%(whole)s, %(text)s, %(digest)s, 0, %(pattern)s)
returning group_id;

-- name: count_members
update rule_groups g set members = g.members + m.more
from jsonb_to_recordset(%(members)s::jsonb) as m (group_id int, more bigint)
where g.group_id = m.group_id;

-- name: drop_empty_groups
delete from rule_groups where members = 0 returning group_id;

-- name: add_predicate
insert into rule_predicates (class, property, operator, sort)
values (%(class)s, %(property)s, %(operator)s, %(sort)s)
returning predicate_id;

-- name: read_groups
select group_id, pattern, driver, members, chosen_with from rule_groups where whole order by group_id;

-- name: read_predicates
select predicate_id, class, property, operator, sort from rule_predicates;

-- name: choose_driver
update rule_groups set driver = %(driver)s, chosen_at = members, chosen_with = %(resources)s
where group_id = %(group)s;

-- name: drive
-- Use another leaf as driving predicate of the rules of a group.
update end_rules set driver_id = leaves[%(driver)s + 1]
where group_id = %(group)s and driver_id is distinct from leaves[%(driver)s + 1];

-- name: set_graph_version
update mdp_state set graph_version = %(graph_version)s;

-- name: count_constants
-- The number of distinct constants of the rules of a group, for each leaf.
select leaf - 1, count(distinct rule) from end_rules, unnest(leaves) with ordinality as l (rule, leaf)
where group_id = %(group)s group by leaf;

-- name: groups_to_revise
-- Whole groups with several constants whose number of rules, or the number of resources, has doubled since their driving
-- predicate was chosen.
select group_id from rule_groups
where whole and jsonb_array_length(pattern -> 'leaves') > 1
  and (members >= 2 * chosen_at + 8 or (members > 1 and %(resources)s >= 2 * chosen_with + 1000))
order by group_id;

-- name: count_members_of
select members from rule_groups where group_id = %(group)s;

-- name: insert_searches
insert into rule_searches (rule_id, searched_id)
select rule_id, searched_id from jsonb_to_recordset(%(searches)s::jsonb) as s (rule_id bigint, searched_id bigint)
on conflict do nothing;

-- name: advance_rules
update mdp_state
set position = %(position)s, last_rule = %(last_rule)s, last_atomic_rule = %(last_atomic_rule)s,
    graph_version = coalesce(%(graph_version)s::bigint, graph_version);

-- name: insert_rules_transaction
insert into transactions (position, cause) values (%(position)s, %(cause)s);

-- name: find_rules_named
select name, id, text from rules
where owner = %(owner)s::bigint and name = any (array(select jsonb_array_elements_text(%(names)s::jsonb)));

-- name: find_rules
select id, owner, name, text from rules where id = any (%(ids)s) order by id;

-- name: all_rules
select id, owner, name, text from rules order by id;

-- name: find_searching
-- The rules that search these rules.
select s.searched_id, r.id, r.owner, r.name, r.text
from rule_searches s join rules r on r.id = s.rule_id
where s.searched_id = any (%(ids)s) order by r.id;

-- name: find_rule_ends
select rule_id, end_id from rule_ends where rule_id = any (%(ids)s) order by rule_id, end_id;

-- name: change_rule
-- The author of a rule stays if its text does.
update rules
set text = %(text)s, position = %(position)s,
    changed_by = case when text = %(text)s then changed_by else %(changed_by)s end
where id = %(id)s;

-- name: delete_searches
delete from rule_searches where rule_id = any (%(ids)s);

-- name: delete_rules
delete from rules where id = any (%(ids)s);

-- name: release_ends
-- Detach these rules from their end rules.
with gone as (delete from rule_ends where rule_id = any (%(ids)s) returning end_id),
     counted as (select end_id, count(*) as times from gone group by end_id)
update atomic_rules a set uses = a.uses - c.times from counted c where a.rule_id = c.end_id
returning a.rule_id;

-- name: drop_ends
-- Delete those of these end rules that no rule uses.
with gone as (
    delete from end_rules e
    where e.rule_id = any (%(rules)s) and not exists (select from rule_ends r where r.end_id = e.rule_id)
    returning e.group_id),
     counted as (select group_id, count(*) as times from gone group by group_id)
update rule_groups g set members = g.members - c.times from counted c where g.group_id = c.group_id;

-- name: drop_unused
-- One step down the graph: delete those of these atomic rules that are not used. Returns them and their inputs.
with gone as (
    delete from atomic_rules where rule_id = any (%(rules)s) and uses = 0 returning rule_id, group_id),
     leaving as (
    delete from rule_dependencies d using gone where d.target = gone.rule_id returning d.source),
     counted as (select source, count(*) as times from leaving group by source),
     grouped as (select group_id, count(*) as times from gone where group_id is not null group by group_id),
     members as (
    update rule_groups g set members = g.members - c.times from grouped c where g.group_id = c.group_id),
     needed as (
    update atomic_rules a set uses = a.uses - c.times from counted c where a.rule_id = c.source returning a.rule_id)
select (select coalesce(array_agg(rule_id), '{}') from gone), (select coalesce(array_agg(rule_id), '{}') from needed);

-- name: clear_results
-- Delete the results of the previous run.
delete from result_objects;

-- name: clear_ranges
delete from result_ranges;

-- name: begin_filter
-- Delete the results of the previous run, set the time limit of the following statements, and pin plans as in pin_filter.
with objects as (delete from result_objects), ranges as (delete from result_ranges)
select set_config('enable_seqscan', 'off', true), set_config('jit', 'off', true),
       set_config('enable_hashjoin', 'off', true), set_config('enable_mergejoin', 'off', true),
       set_config('enable_material', 'off', true), set_config('enable_memoize', 'off', true),
       set_config('join_collapse_limit', '1', true), set_config('from_collapse_limit', '1', true),
       set_config('plan_cache_mode', 'force_generic_plan', true),
       set_config('mdv.statement_timeout', current_setting('statement_timeout'), true),
       set_config('statement_timeout', %(limit)s, true);

-- name: pin_filter
-- Joins run in the order in which they are written, with nested loops and index lookups. Each step reads few rows. The
-- planner would choose otherwise if it plans while the tables are small.
select set_config('enable_seqscan', 'off', true), set_config('jit', 'off', true),
       set_config('enable_hashjoin', 'off', true), set_config('enable_mergejoin', 'off', true),
       set_config('enable_material', 'off', true), set_config('enable_memoize', 'off', true),
       set_config('join_collapse_limit', '1', true), set_config('from_collapse_limit', '1', true),
       set_config('plan_cache_mode', 'force_generic_plan', true);

-- name: unpin_filter
select set_config('enable_seqscan', 'on', true), set_config('enable_hashjoin', 'on', true),
       set_config('enable_mergejoin', 'on', true), set_config('enable_material', 'on', true),
       set_config('enable_memoize', 'on', true),
       set_config('join_collapse_limit', '8', true), set_config('from_collapse_limit', '8', true),
       set_config('plan_cache_mode', 'auto', true);

-- name: plan_freely
-- The same as unpin_filter, and set the time limit of the following statements.
select set_config('enable_seqscan', 'on', true), set_config('enable_hashjoin', 'on', true),
       set_config('enable_mergejoin', 'on', true), set_config('enable_material', 'on', true),
       set_config('enable_memoize', 'on', true),
       set_config('join_collapse_limit', '8', true), set_config('from_collapse_limit', '8', true),
       set_config('plan_cache_mode', 'auto', true),
       set_config('mdv.statement_timeout', current_setting('statement_timeout'), true),
       set_config('statement_timeout', %(most)s, true);

-- name: limit_time
select set_config('statement_timeout', %(most)s, true);

-- name: matched_resources
-- The resources that match a rule now and did not before, or one row with NULL. This also ends the time limit.
select m.resource_id
from (select set_config('statement_timeout', current_setting('mdv.statement_timeout'), true)) as unlimited
left join (select resource_id from result_objects where matched
           union
           select resource_id from result_ranges where gains) m on true;

-- name: changed_since
-- Statements that were added or removed after a position: resource, property and target.
select resource_id, property_id, target_id from filter_data where position > %(since)s
union
select resource_id, property_id, target_id from filter_data_history where until_position > %(since)s;

-- name: find_referring
-- References from some resources to some targets. Both lists may be long, so the targets are hashed: "is true" keeps the
-- planner from using a join, which would compare each reference with each target.
with reference as (
    select distinct f.resource_id, f.target_id
    from unnest(%(resources)s::bigint[]) as r (resource_id)
    cross join lateral (
        select f.resource_id, f.target_id from filter_data f
        where f.resource_id = r.resource_id and f.target_id is not null offset 0) f)
select resource_id, target_id from reference
where (target_id in (select t.target_id from unnest(%(targets)s::bigint[]) as t (target_id))) is true;

-- name: find_numbers
select uri, id from resources where uri = any (array(select jsonb_array_elements_text(%(uris)s::jsonb)));

-- name: number_resources
-- The IDs of these URIs. New URIs get IDs after `last`.
with asked as (select uri from jsonb_array_elements_text(%(uris)s::jsonb) as u (uri)),
     fresh as (
    insert into resources (id, uri)
    select %(last)s + row_number() over (order by uri), uri from asked a
    where not exists (select from resources r where r.uri = a.uri)
    returning id, uri)
select uri, id, true from fresh
union all
select r.uri, r.id, false from asked a join resources r on r.uri = a.uri;

-- name: set_last_resource
update mdp_state set last_resource = %(last)s;
