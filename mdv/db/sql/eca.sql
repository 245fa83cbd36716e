-- The SQL of event-condition-action rules, besides that of their templates (mdv/db/eca).

-- name: read_templates
-- The templates of active and shadow rules.
select t.id, t.text from eca_templates t
where exists (select from eca_keys k where k.template_id = t.id)
order by t.id;

-- name: read_all_templates
-- The templates of all rules.
select t.id, t.text from eca_templates t
where exists (select from eca_rules r where r.template_id = t.id)
order by t.id;

-- name: read_normal_texts
select id, normal from eca_rules
where id = any (array(select jsonb_array_elements_text(%(rules)s::jsonb)::bigint));

-- name: list_constants
select id, name, to_jsonb(constants), state, broken_state from eca_rules where template_id = %(template_id)s::int order by id;

-- name: read_template_of
select t.id, t.text, to_jsonb(r.constants) from eca_rules r join eca_templates t on t.id = r.template_id
where r.id = %(id)s::bigint;

-- name: update_template
update eca_rules
set template_id = %(template_id)s::int, constants = array(select jsonb_array_elements_text(%(constants)s::jsonb))
where id = %(id)s::bigint;

-- name: find_held
-- Those of these statements that a document contains.
select k.n
from jsonb_to_recordset(%(statements)s::jsonb) as k (
    n int, subject text, property_id int, hash bigint, target text, value text, lang text, datatype_id int)
join resources r on r.uri = k.subject
cross join lateral (
    select from filter_data f
    where f.resource_id = r.id and f.property_id = k.property_id and f.hash = k.hash
      and f.value is not distinct from k.value and f.lang is not distinct from k.lang
      and f.datatype_id is not distinct from k.datatype_id
      and f.target_id is not distinct from (select t.id from resources t where t.uri = k.target)
    limit 1
) held;

-- name: find_described_otherwise
-- Those of these resources that a statement describes which is not one of `statements`.
with known as materialized (
    select r.id, k.property_id, k.hash
    from jsonb_to_recordset(%(statements)s::jsonb) as k (subject text, property_id int, hash bigint)
    join resources r on r.uri = k.subject
)
select r.uri
from resources r
where r.uri = any (array(select jsonb_array_elements_text(%(subjects)s::jsonb)))
  and exists (
    select from filter_data f
    where f.resource_id = r.id
      and not exists (select from known k where k.id = f.resource_id and k.property_id = f.property_id and k.hash = f.hash));

-- name: find_uris
-- The URIs of these resources.
select id, uri from resources where id = any (%(ids)s::bigint[]);

-- name: find_names
-- The URIs of these properties and datatypes.
select id, uri from vocabulary where id = any (%(ids)s::int[]);

-- name: insert_run
-- A run with the changes of its actions, in their order.
with run as (
    insert into eca_runs (position, cause, subject, outcome, fired, trace, changed_by, copies, parent_run, parent_copy,
                          origin, rules)
    values (%(position)s::bigint, %(cause)s, %(subject)s, %(outcome)s, %(fired)s::int, %(trace)s::jsonb, %(by)s,
            %(copies)s::jsonb, %(parent_run)s::bigint, %(parent_copy)s::int, %(origin)s::bigint,
            array(select jsonb_array_elements_text(%(rules)s::jsonb)::bigint))
    returning id
), changes as (
    insert into eca_changes (position, run_id, step, rule_id, rule_name, delta, is_added, document, subject, property,
                             object, copy, change)
    select %(position)s::bigint, run.id, c.step, c.rule_id, c.rule_name, c.delta, c.is_added, c.document, c.subject,
           c.property, c.object, c.copy, c.change
    from run, rows from (jsonb_to_recordset(%(changes)s::jsonb) as (
        step int, rule_id bigint, rule_name text, delta jsonb, is_added boolean, document text, subject text,
        property text, object jsonb, copy int, change int)) with ordinality as c
    order by c.ordinality
)
select id from run;

-- name: count_fired
-- A detached copy fails in a transaction of its own, so its firing says nothing about failures.
insert into eca_counts (rule_id, fired, failed, failures, last_fired)
select rule_id, fired, failed, case when failed > 0 then 1 else 0 end, now()
from jsonb_to_recordset(%(counts)s::jsonb) as c (rule_id bigint, fired int, failed int, ran boolean)
where exists (select from eca_rules r where r.id = c.rule_id)
on conflict (rule_id) do update
set fired = eca_counts.fired + excluded.fired, failed = eca_counts.failed + excluded.failed,
    failures = case when excluded.failed > 0 then eca_counts.failures + 1
                    when (select c.ran from jsonb_to_recordset(%(counts)s::jsonb) as c (rule_id bigint, ran boolean)
                          where c.rule_id = excluded.rule_id) then 0
                    else eca_counts.failures end,
    last_fired = excluded.last_fired;

-- name: queue_detached
-- Queue the detached copies of a run. Each has a URI of its own, so that one that is retried delays no other.
insert into jobs (kind, uri, priority, body, options, caller)
select 'detached', uri, %(priority)s::smallint, convert_to(body, 'UTF8'),
       jsonb_build_object('run', %(run)s::bigint, 'copy', copy, 'by', by), 'event-condition-action rules'
from jsonb_to_recordset(%(jobs)s::jsonb) as j (uri text, copy int, by text, body text)
order by copy;

-- name: queue_compensation
insert into jobs (kind, uri, priority, options, caller)
values ('compensate', %(uri)s, %(priority)s::smallint,
        jsonb_build_object('run', %(run)s::bigint, 'copies', %(copies)s::jsonb, 'reason', %(reason)s::text,
                           'by', %(by)s::text), 'event-condition-action rules')
returning id;

-- name: count_detached
select count(*) from eca_runs where origin = %(origin)s::bigint and cause = 'detached';

-- name: read_runs
select id, position, cause, subject, outcome, copies, to_jsonb(compensated), parent_run, parent_copy, origin from eca_runs
where id = any (array(select jsonb_array_elements_text(%(runs)s::jsonb)::bigint)) order by id;

-- name: read_detached_runs
select id, position, cause, subject, outcome, copies, to_jsonb(compensated), parent_run, parent_copy, origin from eca_runs
where parent_run = any (array(select jsonb_array_elements_text(%(runs)s::jsonb)::bigint)) and outcome <> 'refused'
order by id;

-- name: read_later_runs
select id, position, cause, subject, outcome, copies, to_jsonb(compensated), parent_run, parent_copy, origin from eca_runs
where position >= %(position)s::bigint and outcome <> 'refused' and cause <> 'compensation'
order by position, id limit %(most)s::int;

-- name: read_changes
select copy, step, change, rule_id, rule_name, is_added, document, subject, property, object from eca_changes
where run_id = %(run)s::bigint order by id;

-- name: read_net_changes
-- What the transaction at a position changed in a document: rows that it wrote, and rows that it moved to the history.
with document as (
    select id from documents where uri = %(document)s
), changed as (
    select true as is_added, resource_id, property_id, target_id, value, lang, datatype_id
    from filter_data where document_id = (select id from document) and position + 0 = %(position)s::bigint
    union all
    select position + 0 = %(position)s::bigint, resource_id, property_id, target_id, value, lang, datatype_id
    from filter_data_history
    where document_id = (select id from document) and until_position >= %(position)s::bigint
      and %(position)s::bigint in (position, until_position)
)
select c.is_added, r.uri, p.uri, t.uri, c.value, c.lang, k.uri
from changed c
join resources r on r.id = c.resource_id join vocabulary p on p.id = c.property_id
left join resources t on t.id = c.target_id left join vocabulary k on k.id = c.datatype_id;

-- name: mark_compensated
update eca_runs r
set compensated = array(select distinct unnest(r.compensated || array(select jsonb_array_elements_text(k.numbers)::int))),
    outcome = case when k.numbers @> '[-1]' then 'compensated' else r.outcome end
from jsonb_to_recordset(%(runs)s::jsonb) as k (id bigint, numbers jsonb) where r.id = k.id;

-- name: delete_old_runs
delete from eca_runs where id in (
    select id from eca_runs where at < now() - %(seconds)s::float8 * interval '1 second' order by at limit %(most)s::int);

-- name: quarantine
-- Stop rules that have failed in several transactions in a row, or for a reason that stops them at once.
with failing as (
    update eca_rules r set state = 'quarantined', position = %(position)s::bigint,
        reason = coalesce('It was too slow: ' || k.reason || '.',
                          'It failed in ' || coalesce(c.failures, 0) + %(uncounted)s::int || ' transactions in a row.')
    from jsonb_to_recordset(%(rules)s::jsonb) as k (id bigint, reason text)
    left join eca_counts c on c.rule_id = k.id
    where k.id = r.id
      and (r.state = 'active' and (k.reason is not null or coalesce(c.failures, 0) + %(uncounted)s::int >= %(most)s::int)
           or r.state = 'shadow' and k.reason is not null)
    returning r.id
), gone as (
    delete from eca_keys k using failing f where k.rule_id = f.id
)
select id from failing;

-- name: break_rules
-- Stop rules that a schema has made invalid.
with broken as (
    update eca_rules r set broken_state = r.state, state = 'quarantined', reason = k.reason, position = %(position)s::bigint
    from jsonb_to_recordset(%(rules)s::jsonb) as k (id bigint, reason text)
    where k.id = r.id and r.state in ('active', 'shadow')
    returning r.id
)
delete from eca_keys k using broken b where k.rule_id = b.id;

-- name: mend_rules
-- Rules that are valid again return to their state.
update eca_rules set state = broken_state, broken_state = null, reason = null, position = %(position)s::bigint
where broken_state is not null and id = any (array(select jsonb_array_elements_text(%(rules)s::jsonb)::bigint));

-- name: insert_rules
insert into eca_rules (id, rule_set, name, text, normal, state, template_id, constants, rank, precedes, follows, prefixes,
                       document_prefixes, position, changed_by)
select id, rule_set, name, text, normal, state, template_id,
       array(select jsonb_array_elements_text(constants)), array(select jsonb_array_elements_text(rank)::bigint),
       array(select jsonb_array_elements_text(precedes)), array(select jsonb_array_elements_text(follows)),
       case when jsonb_typeof(prefixes) = 'array' then array(select jsonb_array_elements_text(prefixes)) end,
       case when jsonb_typeof(document_prefixes) = 'array'
            then array(select jsonb_array_elements_text(document_prefixes)) end,
       %(position)s::bigint, changed_by
from jsonb_to_recordset(%(rules)s::jsonb) as r (
    id bigint, rule_set text, name text, text text, normal text, state text, template_id int, constants jsonb,
    rank jsonb, precedes jsonb, follows jsonb, prefixes jsonb, document_prefixes jsonb, changed_by text);

-- name: read_order
-- Rules that name others in PRECEDES or FOLLOWS, and the rules that they name.
with named as (
    select distinct unnest(precedes || follows) as name from eca_rules where precedes <> '{}' or follows <> '{}'
)
select id, name, to_jsonb(precedes), to_jsonb(follows), to_jsonb(rank) from eca_rules
where precedes <> '{}' or follows <> '{}' or name in (select name from named)
   or name = any (array(select jsonb_array_elements_text(%(names)s::jsonb)));

-- name: set_ranks
update eca_rules r set rank = array(select jsonb_array_elements_text(k.rank)::bigint)
from jsonb_to_recordset(%(ranks)s::jsonb) as k (id bigint, rank jsonb) where r.id = k.id;

-- name: find_rule_names
select name from eca_rules where name = any (array(select jsonb_array_elements_text(%(names)s::jsonb)));

-- name: last_rule
-- The highest ID that a rule has had. IDs of removed rules are not used again.
select last_eca_rule from mdp_state;

-- name: has_rules
select exists (select from eca_keys);

-- name: has_classes
select exists (select from eca_classes);

-- name: insert_keys
insert into eca_keys (template_id, key, rule_id)
select template_id, key, rule_id from jsonb_to_recordset(%(keys)s::jsonb) as k (template_id int, key text, rule_id bigint)
on conflict do nothing;

-- name: find_template
insert into eca_templates (text, digest) values (%(text)s, decode(%(digest)s, 'hex'))
on conflict (digest) do update set digest = excluded.digest
returning id;

-- name: insert_resources
insert into resources (id, uri)
select (%(last)s::bigint + row_number() over ()), uri
from (select distinct uri from jsonb_array_elements_text(%(uris)s::jsonb) as u (uri)
      where not exists (select from resources r where r.uri = u.uri)) missing;

-- name: set_last_resource
update mdp_state set last_resource = %(last)s::bigint;

-- name: delete_classes
delete from eca_classes;

-- name: insert_classes
insert into eca_classes (class_id, superclass_id)
select c.id, s.id
from jsonb_to_recordset(%(pairs)s::jsonb) as p (class text, superclass text)
join resources c on c.uri = p.class join resources s on s.uri = p.superclass;

-- name: advance
-- Record a change of the rules: the version of the rules, and the position.
with one as (
    insert into transactions (position, cause) values (%(position)s::bigint, 'rules')
)
update mdp_state
set position = %(position)s::bigint, eca_version = %(version)s::bigint,
    last_eca_rule = greatest(last_eca_rule, (select max(id) from eca_rules));

-- name: set_version
update mdp_state set eca_version = %(version)s::bigint;

-- name: list_rules
select r.id, r.name, r.rule_set, r.state, r.reason, r.text, r.normal, r.position, r.created_at::text, r.changed_by,
       coalesce(c.fired, 0), coalesce(c.failed, 0), c.last_fired::text, to_jsonb(r.document_prefixes),
       to_jsonb(r.prefixes)
from eca_rules r left join eca_counts c on c.rule_id = r.id
where r.id > %(after)s::bigint
  and (%(id)s::bigint is null or r.id = %(id)s::bigint)
  and (%(rule_set)s::text is null or r.rule_set = %(rule_set)s::text)
  and (%(state)s::text is null or r.state = %(state)s::text)
order by r.id limit %(limit)s::int;

-- name: find_rule_id
select id from eca_rules where name = %(name)s;

-- name: delete_rule
delete from eca_rules where id = %(id)s::bigint;

-- name: delete_keys
delete from eca_keys where rule_id = %(id)s::bigint;

-- name: set_state
update eca_rules set state = %(state)s, reason = null, broken_state = null, position = %(position)s::bigint, changed_by = %(by)s
where id = %(id)s::bigint;

-- name: reset_failures
update eca_counts set failures = 0 where rule_id = %(id)s::bigint;

-- name: find_followers
-- Rules that name this one in PRECEDES or FOLLOWS.
select id, name from eca_rules where %(name)s::text = any (precedes || follows) order by id;

