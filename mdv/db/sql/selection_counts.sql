-- Changes of selection counts by changes of rules, collected in reason_changes by mdv/db/selection_counts.py.

-- name: read_ends
-- The end rules of these rules: the group of each, and its constants in the order of the pattern.
select e.rule_id, e.group_id, l.n, c.number, c.value
from (select distinct end_id from rule_ends where rule_id = any (%(ids)s)) r
join end_rules e on e.rule_id = r.end_id
left join lateral unnest(e.leaves) with ordinality as l (id, n) on true
left join lateral (select number, value from rule_constants where rule_id = l.id offset 0) c on true
order by e.rule_id, l.n;

-- name: read_ends_of_each
-- The same for each of these rules.
select r.rule_id, r.end_id, e.group_id, l.n, c.number, c.value
from rule_ends r
join end_rules e on e.rule_id = r.end_id
left join lateral unnest(e.leaves) with ordinality as l (id, n) on true
left join lateral (select number, value from rule_constants where rule_id = l.id offset 0) c on true
where r.rule_id = any (%(ids)s)
order by r.rule_id, r.end_id, l.n;

-- name: touch
-- The groups of the end rules of these rules, with the LMRs that own the rules.
select distinct e.group_id, r.owner
from rule_ends r join end_rules e on e.rule_id = r.end_id
where r.rule_id = any (%(ids)s) and r.owner > 0;

-- name: change_reasons
-- Change the selection counts by the results of these rules: each match counts once for each rule with the end rule.
-- Groups whose rules match ranges of constants are counted by change_range_reasons.
insert into reason_changes (lmr_id, resource_id, more)
select r.owner, o.resource_id, %(more)s::int * count(*)
from (select distinct rule_id, resource_id from result_objects where matched) o
join end_rules e on e.rule_id = o.rule_id and e.group_id <> all (%(ranged)s::int[])
join rule_ends r on r.end_id = o.rule_id and r.owner > 0 and r.rule_id = any (%(ids)s)
group by r.owner, o.resource_id;

-- name: read_ranges
select l.group_id, l.lmr_id, l.operator, l.least, l.greatest, l.least_text, l.greatest_text
from unnest(%(groups)s::int[], %(lmrs)s::bigint[]) as t (group_id, lmr_id)
join lmr_ranges l on l.group_id = t.group_id and l.lmr_id = t.lmr_id;

-- name: forget_ranges
delete from lmr_ranges l using unnest(%(groups)s::int[], %(lmrs)s::bigint[]) as t (group_id, lmr_id)
where l.group_id = t.group_id and l.lmr_id = t.lmr_id;

-- name: make_ranges
-- The least and the greatest constants of LMRs in groups, over all of their rules.
insert into lmr_ranges (group_id, lmr_id, operator, least, greatest, least_text, greatest_text)
select t.group_id, t.lmr_id, c.operator, min(c.number), max(c.number), min(c.value), max(c.value)
from unnest(%(groups)s::int[], %(lmrs)s::bigint[]) as t (group_id, lmr_id)
join end_rules e on e.group_id = t.group_id
join rule_ends r on r.end_id = e.rule_id and r.owner = t.lmr_id
cross join lateral (
    select '>' as operator, number, value from filter_rules_gt where rule_id = e.driver_id
    union all select '>=', number, value from filter_rules_ge where rule_id = e.driver_id
    union all select '<', number, value from filter_rules_lt where rule_id = e.driver_id
    union all select '<=', number, value from filter_rules_le where rule_id = e.driver_id
    union all select '!=', number, value from filter_rules_ne where rule_id = e.driver_id) c
group by t.group_id, t.lmr_id, c.operator;

-- name: ranges_without
-- The least and the greatest constants of LMRs in groups, without these rules.
select t.group_id, t.lmr_id, min(c.number), max(c.number), min(c.value), max(c.value)
from unnest(%(groups)s::int[], %(lmrs)s::bigint[]) as t (group_id, lmr_id)
join end_rules e on e.group_id = t.group_id
join rule_ends r on r.end_id = e.rule_id and r.owner = t.lmr_id and r.rule_id <> all (%(ids)s::bigint[])
cross join lateral (
    select number, value from filter_rules_gt where rule_id = e.driver_id
    union all select number, value from filter_rules_ge where rule_id = e.driver_id
    union all select number, value from filter_rules_lt where rule_id = e.driver_id
    union all select number, value from filter_rules_le where rule_id = e.driver_id
    union all select number, value from filter_rules_ne where rule_id = e.driver_id) c
group by t.group_id, t.lmr_id;

-- name: extend_ranges
-- Extend the ranges by the constants of these new rules.
insert into lmr_ranges as l (group_id, lmr_id, operator, least, greatest, least_text, greatest_text)
select e.group_id, r.owner, c.operator, min(c.number), max(c.number), min(c.value), max(c.value)
from rule_ends r
join end_rules e on e.rule_id = r.end_id and e.group_id = any (%(ranged)s::int[])
cross join lateral (
    select '>' as operator, number, value from filter_rules_gt where rule_id = e.driver_id
    union all select '>=', number, value from filter_rules_ge where rule_id = e.driver_id
    union all select '<', number, value from filter_rules_lt where rule_id = e.driver_id
    union all select '<=', number, value from filter_rules_le where rule_id = e.driver_id
    union all select '!=', number, value from filter_rules_ne where rule_id = e.driver_id) c
where r.rule_id = any (%(ids)s) and r.owner > 0
group by e.group_id, r.owner, c.operator
on conflict (group_id, lmr_id) do update
set least = least(l.least, excluded.least), greatest = greatest(l.greatest, excluded.greatest),
    least_text = least(l.least_text, excluded.least_text),
    greatest_text = greatest(l.greatest_text, excluded.greatest_text);

-- name: change_range_reasons
-- Change the selection counts by ranges of constants, for the resources whose values match.
with range as (
    select * from jsonb_to_recordset(%(ranges)s::jsonb) as r (
        group_id int, lmr_id bigint, more int, operator text, least numeric, greatest numeric, least_text text,
        greatest_text text))
insert into reason_changes (lmr_id, resource_id, more)
select r.lmr_id, x.resource_id, r.more
from range r
join result_ranges x on x.group_id = r.group_id
where case r.operator
          when '>' then x.high_after > r.least
          when '>=' then x.high_after >= r.least
          when '<' then x.low_after < r.greatest
          when '<=' then x.low_after <= r.greatest
          else case when x.low_after is not null
                        then not (x.low_after = r.least and x.high_after = r.least and r.least = r.greatest)
                    when x.low_text_after is not null
                        then not (x.low_text_after = r.least_text and x.high_text_after = r.least_text
                                  and r.least_text = r.greatest_text)
                    else false end
      end;

-- name: count_changes
select count(*) from reason_changes;

-- name: subtract_present
-- Subtract all current selection counts.
insert into reason_changes (lmr_id, resource_id, more)
select lmr_id, resource_id, -reasons from lmr_resources where reasons <> 0;

-- name: forget_all_ranges
delete from lmr_ranges;

-- name: every_range
select distinct e.group_id, r.owner
from end_rules e join rule_ends r on r.end_id = e.rule_id and r.owner > 0
where e.group_id = any (%(ranged)s::int[]);

-- name: add_all
-- Add the results of all end rules.
insert into reason_changes (lmr_id, resource_id, more)
select r.owner, o.resource_id, count(*)
from (select distinct rule_id, resource_id from result_objects where matched) o
join rule_ends r on r.end_id = o.rule_id and r.owner > 0
group by r.owner, o.resource_id;
