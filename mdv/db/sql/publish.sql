-- Publication (paper, end of 3.4): compute the events of each LMR from the results of the filter, in the same transaction.
-- The statements are in the order in which mdv/db/publish.py runs them. Each works for all LMRs. A strong reference is a
-- statement with one of the properties %(strong)s, or one whose object is a blank node. Every lookup has an "offset 0",
-- which keeps it a nested loop over an index, whatever the planner knows about the tables.

-- name: begin_publication
-- Delete the changes of the previous publication. The time limit of rules does not apply to publication.
with old as (delete from news)
select set_config('statement_timeout',
                  coalesce(nullif(current_setting('mdv.statement_timeout', true), ''), '0'), true);

-- name: count_reasons
-- Update the selection counts (`reasons`) of LMRs and resources. The first or last selection of a resource is a change to
-- publish. An LMR's rules in a group that match ranges of constants count as one, and only the least and the greatest of
-- their constants matter.
with explicit as (
    select e.owner as lmr_id, o.resource_id, case when o.matched then 1 else -1 end as more
    from result_objects o cross join lateral (
        select owner from rule_ends e where e.end_id = o.rule_id and e.owner > 0 offset 0) e),
     upward as (
    select l.lmr_id, x.resource_id, case when b.after > b.before then 1 else -1 end as more
    from result_ranges x
    cross join lateral (
        select coalesce(x.high_before, '-Infinity') as before, coalesce(x.high_after, '-Infinity') as after) b
    cross join lateral (
        select lmr_id from lmr_ranges l
        where l.group_id = x.group_id and l.operator = '>'
          and l.least >= least(b.before, b.after) and l.least < greatest(b.before, b.after)
        union all
        select lmr_id from lmr_ranges l
        where l.group_id = x.group_id and l.operator = '>='
          and l.least > least(b.before, b.after) and l.least <= greatest(b.before, b.after)
        offset 0) l),
     downward as (
    select l.lmr_id, x.resource_id, case when b.after < b.before then 1 else -1 end as more
    from result_ranges x
    cross join lateral (
        select coalesce(x.low_before, 'Infinity') as before, coalesce(x.low_after, 'Infinity') as after) b
    cross join lateral (
        select lmr_id from lmr_ranges l
        where l.group_id = x.group_id and l.operator = '<'
          and l.greatest > least(b.before, b.after) and l.greatest <= greatest(b.before, b.after)
        union all
        select lmr_id from lmr_ranges l
        where l.group_id = x.group_id and l.operator = '<='
          and l.greatest >= least(b.before, b.after) and l.greatest < greatest(b.before, b.after)
        offset 0) l),
     other as (
    -- One different value is enough: the condition fails only if all values equal the constant, or if there is no value.
    select l.lmr_id, x.resource_id, l.after::int - l.before::int as more
    from result_ranges x
    cross join lateral (
        select l.lmr_id,
               case when x.low_before is not null
                        then not (x.low_before = l.least and x.high_before = l.least and l.least = l.greatest)
                    when x.low_text_before is not null
                        then not (x.low_text_before = l.least_text and x.high_text_before = l.least_text
                                  and l.least_text = l.greatest_text)
                    else false end as before,
               case when x.low_after is not null
                        then not (x.low_after = l.least and x.high_after = l.least and l.least = l.greatest)
                    when x.low_text_after is not null
                        then not (x.low_text_after = l.least_text and x.high_text_after = l.least_text
                                  and l.least_text = l.greatest_text)
                    else false end as after
        from lmr_ranges l where l.group_id = x.group_id and l.operator = '!=' offset 0) l
    where l.before <> l.after),
     changed as (
    select lmr_id, resource_id, sum(more)::int as more
    from (select * from explicit union all select * from upward
          union all select * from downward union all select * from other) every
    group by lmr_id, resource_id having sum(more) <> 0),
     counted as (
    insert into lmr_resources as c (lmr_id, resource_id, reasons)
    select lmr_id, resource_id, more from changed
    on conflict (lmr_id, resource_id) do update set reasons = c.reasons + excluded.reasons
    returning c.lmr_id, c.resource_id, old.reasons as before, new.reasons as after)
insert into news (lmr_id, resource_id, kind)
select lmr_id, resource_id, 0 from counted where before is null
union all
select lmr_id, resource_id, 4 from counted where coalesce(before, 0) <= 0 and after > 0
union all
select lmr_id, resource_id, 3 from counted where before > 0 and after <= 0;

-- name: count_rule_reasons
-- The same for changes of selection counts by changes of rules.
with changed as (
    select lmr_id, resource_id, sum(more)::int as more from reason_changes
    group by lmr_id, resource_id having sum(more) <> 0),
     counted as (
    insert into lmr_resources as c (lmr_id, resource_id, reasons)
    select lmr_id, resource_id, more from changed
    on conflict (lmr_id, resource_id) do update set reasons = c.reasons + excluded.reasons
    returning c.lmr_id, c.resource_id, old.reasons as before, new.reasons as after)
insert into news (lmr_id, resource_id, kind)
select lmr_id, resource_id, 0 from counted where before is null
union all
select lmr_id, resource_id, 4 from counted where coalesce(before, 0) <= 0 and after > 0
union all
select lmr_id, resource_id, 3 from counted where before > 0 and after <= 0;

-- name: announce
-- Events about rules, for the LMRs that own them.
insert into news (lmr_id, resource_id, kind)
select lmr_id, rule_id, %(kind)s from unnest(%(lmrs)s::bigint[], %(rules)s::bigint[]) as n (lmr_id, rule_id);

-- name: clear_reason_changes
delete from reason_changes;

-- name: note_gone
-- LMRs that hold resources which were deleted at the MDP.
insert into news (lmr_id, resource_id, kind)
select c.lmr_id, c.resource_id, 1
from unnest(%(gone)s::bigint[]) as g (resource_id)
cross join lateral (select lmr_id, resource_id from lmr_resources c where c.resource_id = g.resource_id offset 0) c;

-- name: note_returned
-- Suspended rules still match deleted resources. When such a resource is registered again, their LMRs receive it.
insert into news (lmr_id, resource_id, kind)
select c.lmr_id, c.resource_id, 4
from unnest(%(returned)s::bigint[]) as r (resource_id)
cross join lateral (
    select lmr_id, resource_id from lmr_resources c where c.resource_id = r.resource_id and c.reasons > 0 offset 0) c
where not exists (
    select from news n where n.lmr_id = c.lmr_id and n.resource_id = c.resource_id and n.kind = 4 offset 0);

-- name: enter
-- Add strongly referenced resources to closures: from resources that an LMR newly selects, and over new references.
with recursive reached (lmr_id, resource_id) as (
    (select lmr_id, resource_id from news where kind = 0
     union
     select c.lmr_id, e.target_id
     from unnest(%(sources)s::bigint[], %(targets)s::bigint[]) as e (resource_id, target_id)
     cross join lateral (select lmr_id from lmr_resources c where c.resource_id = e.resource_id offset 0) c
     where not exists (select from lmr_resources h where h.lmr_id = c.lmr_id and h.resource_id = e.target_id offset 0))
    union
    select r.lmr_id, f.target_id
    from reached r
    cross join lateral (
        select f.target_id from filter_data f
        where f.resource_id = r.resource_id and f.target_id is not null
          and (f.blank or f.property_id = any (%(strong)s::int[])) offset 0) f
    where not exists (select from lmr_resources h where h.lmr_id = r.lmr_id and h.resource_id = f.target_id offset 0)),
     entered as (
    insert into lmr_resources (lmr_id, resource_id, reasons)
    select lmr_id, resource_id, 0 from reached
    on conflict do nothing
    returning lmr_id, resource_id)
insert into news (lmr_id, resource_id, kind) select lmr_id, resource_id, 0 from entered;

-- name: note_new_strong
-- Add resources to closures that are referenced through properties that became strong.
with recursive reached (lmr_id, resource_id) as (
    select c.lmr_id, e.target_id
    from (select distinct resource_id, target_id from filter_data
          where property_id = any (%(stronger)s::int[]) and target_id is not null) e
    join lmr_resources c on c.resource_id = e.resource_id
    where not exists (select from lmr_resources h where h.lmr_id = c.lmr_id and h.resource_id = e.target_id offset 0)
    union
    select r.lmr_id, f.target_id
    from reached r
    join filter_data f on f.resource_id = r.resource_id and f.target_id is not null
                      and (f.blank or f.property_id = any (%(strong)s::int[]))
    where not exists (select from lmr_resources h where h.lmr_id = r.lmr_id and h.resource_id = f.target_id offset 0)),
     entered as (
    insert into lmr_resources (lmr_id, resource_id, reasons)
    select lmr_id, resource_id, 0 from reached
    on conflict do nothing
    returning lmr_id, resource_id)
insert into news (lmr_id, resource_id, kind) select lmr_id, resource_id, 0 from entered;

-- name: doubt
-- Find resources that may have to leave a closure: those that are no longer selected, the targets of removed references,
-- and all resources that are strongly reachable from these.
with recursive doubt (lmr_id, resource_id) as (
    (select n.lmr_id, n.resource_id from news n where n.kind = 3
     union
     select c.lmr_id, c.resource_id
     from unnest(%(lost)s::bigint[]) as t (resource_id)
     cross join lateral (
        select lmr_id, resource_id from lmr_resources c
        where c.resource_id = t.resource_id and c.reasons <= 0 offset 0) c)
    union
    select d.lmr_id, c.resource_id
    from doubt d
    cross join lateral (
        select f.target_id from filter_data f
        where f.resource_id = d.resource_id and f.target_id is not null
          and (f.blank or f.property_id = any (%(strong)s::int[])) offset 0) f
    cross join lateral (
        select c.resource_id from lmr_resources c
        where c.lmr_id = d.lmr_id and c.resource_id = f.target_id and c.reasons <= 0 offset 0) c)
insert into doubtful_resources (lmr_id, resource_id) select lmr_id, resource_id from doubt
on conflict do nothing;  -- a change of the schema may have inserted some of them

-- name: doubt_weaker
-- The same for the targets of properties that are no longer strong.
insert into doubtful_resources (lmr_id, resource_id)
select distinct c.lmr_id, c.resource_id
from filter_data f
join lmr_resources c on c.resource_id = f.target_id and c.reasons <= 0
where f.property_id = any (%(weaker)s::int[]) and f.target_id is not null
on conflict do nothing;

-- name: doubt_onward
with recursive doubt (lmr_id, resource_id) as (
    select lmr_id, resource_id from doubtful_resources
    union
    select d.lmr_id, c.resource_id
    from doubt d
    join filter_data f on f.resource_id = d.resource_id and f.target_id is not null
                      and (f.blank or f.property_id = any (%(strong)s::int[]))
    join lmr_resources c on c.lmr_id = d.lmr_id and c.resource_id = f.target_id and c.reasons <= 0)
insert into doubtful_resources (lmr_id, resource_id) select lmr_id, resource_id from doubt
on conflict do nothing;

-- name: trust
-- Keep those doubtful resources that a resource of the closure which is not doubtful strongly references, and all that
-- are strongly reachable from these. The rest is unreachable, including cycles.
with recursive trusted (lmr_id, resource_id) as (
    select d.lmr_id, d.resource_id
    from doubtful_resources d
    where exists (
        select from filter_data f
        cross join lateral (
            select from lmr_resources c where c.lmr_id = d.lmr_id and c.resource_id = f.resource_id offset 0) c
        where f.target_id = d.resource_id and (f.blank or f.property_id = any (%(strong)s::int[]))
          and not exists (
              select from doubtful_resources o where o.lmr_id = d.lmr_id and o.resource_id = f.resource_id offset 0)
        offset 0)
    union
    select t.lmr_id, o.resource_id
    from trusted t
    cross join lateral (
        select f.target_id from filter_data f
        where f.resource_id = t.resource_id and f.target_id is not null
          and (f.blank or f.property_id = any (%(strong)s::int[])) offset 0) f
    cross join lateral (
        select o.resource_id from doubtful_resources o
        where o.lmr_id = t.lmr_id and o.resource_id = f.target_id offset 0) o)
delete from doubtful_resources d using trusted t where d.lmr_id = t.lmr_id and d.resource_id = t.resource_id;

-- name: note_leaving
-- Record described resources that leave a closure and were in it before.
insert into news (lmr_id, resource_id, kind)
select d.lmr_id, d.resource_id, -1 from doubtful_resources d
where not exists (select from news n where n.lmr_id = d.lmr_id and n.resource_id = d.resource_id and n.kind = 0)
  and exists (select from filter_data f where f.resource_id = d.resource_id offset 0);

-- name: leave
with gone as (delete from doubtful_resources returning lmr_id, resource_id)
delete from lmr_resources c using gone g where c.lmr_id = g.lmr_id and c.resource_id = g.resource_id;

-- name: note_changed
-- Changed and newly entered resources for each LMR, if they have statements.
insert into news (lmr_id, resource_id, kind)
select p.lmr_id, p.resource_id, 2
from (select c.lmr_id, c.resource_id
      from unnest(%(changed)s::bigint[]) as k (resource_id)
      cross join lateral (
          select lmr_id, resource_id from lmr_resources c where c.resource_id = k.resource_id offset 0) c
      union
      select n.lmr_id, n.resource_id from news n
      where n.kind = 0  -- it may have left again, with the resource that references it
        and exists (
            select from lmr_resources c where c.lmr_id = n.lmr_id and c.resource_id = n.resource_id offset 0)) p
where exists (select from filter_data f where f.resource_id = p.resource_id offset 0);

-- name: write_feed
-- Write the changes as events with offsets after the last one. A deleted resource gets no unmatch event.
with event as (
    select lmr_id, kind, resource_id from news n
    where kind > 0
      and (kind <> 3 or exists (select from filter_data f where f.resource_id = n.resource_id offset 0))
    union all
    select id, 0, null from lmrs where %(schema)s and home is null),
     numbered as (
    select lmr_id, kind, resource_id, %(last_offset)s + row_number() over (order by lmr_id, kind, resource_id) as number
    from event),
     written as (
    insert into feed (lmr_id, "offset", tx, kind, resource_id)
    select lmr_id, number, %(tx)s, kind, resource_id from numbered),
     counted as (
    select count(*) as events, array_agg(distinct lmr_id) as lmrs from numbered),
     published as (
    insert into publications (tx, last_offset, lmrs)
    select %(tx)s, %(last_offset)s + events, lmrs from counted where events > 0),
     advanced as (
    update mdp_state set last_offset = last_offset + (select events from counted) where (select events from counted) > 0)
select events, coalesce(cardinality(lmrs), 0) from counted;

-- name: lmrs_by_resource
-- The LMRs that received an event, for each resource.
select distinct resource_id, lmr_id from news where kind > 0;

-- name: notified_lmrs
select l.name from publications p cross join unnest(p.lmrs) as t (id) join lmrs l on l.id = t.id
where p.tx = %(tx)s order by l.name limit %(most)s;
