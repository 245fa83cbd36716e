-- Publication (paper, end of 3.4): from what the filter found to what each LMR is told, within the filter's transaction.
-- mdv/db/publish.py names the statements in their order. Each works for all LMRs at once. A strong reference is a
-- statement with one of the properties %(strong)s, or one whose object is a blank node. Every look-up stands behind an
-- "offset 0", which keeps it one: by all columns of an index, row after row, whatever the planner saw of the tables.

-- name: begin_publication
delete from news;

-- name: count_reasons
-- Which LMRs have one reason more, or less, to select a resource; where it is their first, or was their last, is news.
-- Of rules that match stretches of constants, all of an LMR's in a group are one reason, and only the least and the
-- greatest of its constants count.
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
    -- Any other value will do: it fails where all values are the one constant, and where there is no value.
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
-- The same for reasons that came or went with rules.
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

-- name: clear_reason_changes
delete from reason_changes;

-- name: note_gone
-- Who had what is gone from the MDP.
insert into news (lmr_id, resource_id, kind)
select c.lmr_id, c.resource_id, 1
from unnest(%(gone)s::bigint[]) as g (resource_id)
cross join lateral (select lmr_id, resource_id from lmr_resources c where c.resource_id = g.resource_id offset 0) c;

-- name: enter
-- What is strongly referenced comes along: from what an LMR selects for the first time, and over references that are new.
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
-- What is strongly referenced by what LMRs hold, through properties that have become strong.
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
-- What may have to leave an LMR: what it selects no longer, the targets of references that are gone, and all that these
-- strongly reference.
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
on conflict do nothing;  -- a change of the schema may have raised some of these doubts

-- name: doubt_weaker
-- The same for the targets of properties that have ceased to be strong.
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
-- Of what is doubtful, what some resource beyond doubt strongly references stays, and all that this strongly references.
-- What is left is reached from nowhere, cycles included.
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
-- Of what is left doubtful, what was there before, as far as anything is said of it.
insert into news (lmr_id, resource_id, kind)
select d.lmr_id, d.resource_id, -1 from doubtful_resources d
where not exists (select from news n where n.lmr_id = d.lmr_id and n.resource_id = d.resource_id and n.kind = 0)
  and exists (select from filter_data f where f.resource_id = d.resource_id offset 0);

-- name: leave
with gone as (delete from doubtful_resources returning lmr_id, resource_id)
delete from lmr_resources c using gone g where c.lmr_id = g.lmr_id and c.resource_id = g.resource_id;

-- name: note_changed
-- Who holds what changed, and what entered: as far as anything is said of it.
insert into news (lmr_id, resource_id, kind)
select p.lmr_id, p.resource_id, 2
from (select c.lmr_id, c.resource_id
      from unnest(%(changed)s::bigint[]) as k (resource_id)
      cross join lateral (
          select lmr_id, resource_id from lmr_resources c where c.resource_id = k.resource_id offset 0) c
      union
      select n.lmr_id, n.resource_id from news n
      where n.kind = 0  -- it may have entered by what left
        and exists (
            select from lmr_resources c where c.lmr_id = n.lmr_id and c.resource_id = n.resource_id offset 0)) p
where exists (select from filter_data f where f.resource_id = p.resource_id offset 0);

-- name: write_feed
-- What is news becomes events, numbered after the last offset. What is gone is not unmatched besides.
with event as (
    select lmr_id, kind, resource_id from news n
    where kind > 0
      and (kind <> 3 or exists (select from filter_data f where f.resource_id = n.resource_id offset 0))
    union all
    select id, 0, null from lmrs where %(schema)s),
     numbered as (
    select lmr_id, kind, resource_id, %(last_offset)s + row_number() over (order by lmr_id, kind, resource_id) as number
    from event),
     written as (
    insert into feed (lmr_id, "offset", tx, kind, resource_id)
    select lmr_id, number, %(tx)s, kind, resource_id from numbered),
     told as (
    select count(*) as events, array_agg(distinct lmr_id) as lmrs from numbered),
     published as (
    insert into publications (tx, last_offset, lmrs)
    select %(tx)s, %(last_offset)s + events, lmrs from told where events > 0),
     advanced as (
    update mdp_state set last_offset = last_offset + (select events from told) where (select events from told) > 0)
select events, coalesce(cardinality(lmrs), 0) from told;

-- name: told_of
-- Which LMRs were told of which resources.
select distinct resource_id, lmr_id from news where kind > 0;

-- name: names_told
select l.name from publications p cross join unnest(p.lmrs) as t (id) join lmrs l on l.id = t.id
where p.tx = %(tx)s order by l.name limit %(most)s;
