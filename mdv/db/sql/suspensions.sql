-- Suspended rules, used by mdv/db/suspensions.py. They are not in the rule graph, and their matches stay as they were.

-- name: suspend_broken
insert into suspended_rules (rule_id, owner, position, reason, broken)
select r.id, r.owner, %(position)s, k.reason, true
from jsonb_to_recordset(%(rules)s::jsonb) as k (id bigint, reason text) join rules r on r.id = k.id;

-- name: broken_rules
-- The rules that are invalid under the schema, and whether their LMRs were notified.
select s.rule_id, exists (
    select from rule_notices n where n.rule_id = s.rule_id and n.position = s.position and n.kind = 5)
from suspended_rules s where s.broken;

-- name: rules_of_group
-- The rules that end in a whole group.
select distinct r.rule_id from rule_ends r join end_rules e on e.rule_id = r.end_id
where e.group_id = %(group)s order by r.rule_id;

-- name: suspend
insert into suspended_rules (rule_id, owner, position, reason, seconds)
select id, owner, %(position)s, %(reason)s, %(seconds)s from rules where id = any (%(ids)s::bigint[]);

-- name: keep_ends
-- Runs before the rules are removed from the graph.
insert into suspended_ends (rule_id, end_id, owner, as_of, unit, ranged, pattern, constants)
select r.rule_id, r.end_id, r.owner, %(as_of)s, e.group_id, e.group_id = any (%(ranged)s::int[]), g.pattern, c.constants
from rule_ends r
join end_rules e on e.rule_id = r.end_id
join rule_groups g on g.group_id = e.group_id
cross join lateral (
    select coalesce(jsonb_agg(
        case when v.value is null then jsonb_build_object('number', v.number::text)
             else jsonb_build_object('text', v.value) end order by l.n), '[]') as constants
    from unnest(e.leaves) with ordinality as l (id, n)
    cross join lateral (select number, value from rule_constants where rule_id = l.id offset 0) v) c
where r.rule_id = any (%(ids)s::bigint[]) and r.owner > 0;

-- name: add_pending
-- Rules that are being added. None of their matches counts yet.
insert into suspended_rules (rule_id, owner, position, reason, pending, counted_up_to)
select id, owner, position, %(reason)s, true, 0 from rules where id = any (%(ids)s::bigint[]);

-- name: keep_pending_end
insert into suspended_ends (rule_id, end_id, owner, as_of, unit, ranged, pattern, constants)
values (%(rule)s, %(number)s, %(owner)s, %(as_of)s, %(unit)s, %(ranged)s, %(pattern)s, %(constants)s);

-- name: pending_ids
select rule_id from suspended_rules where pending order by rule_id;

-- name: count_more
update suspended_rules set counted_up_to = %(bound)s where rule_id = any (%(ids)s::bigint[]) returning rule_id;

-- name: count_less
update suspended_rules set counted_after = %(bound)s where rule_id = any (%(ids)s::bigint[]) returning rule_id;

-- name: read_suspended
select s.rule_id, s.position, s.reason, s.seconds, s.at, s.pending, exists (
    select from rule_notices n where n.rule_id = s.rule_id and n.position = s.position and n.kind = 5)
from suspended_rules s where s.rule_id = any (%(ids)s::bigint[]) order by s.rule_id;

-- name: suspended_of_lmr
select s.rule_id, s.position, s.reason, s.seconds, s.at, s.pending, exists (
    select from rule_notices n where n.rule_id = s.rule_id and n.position = s.position and n.kind = 5), r.name, r.text
from suspended_rules s join rules r on r.id = s.rule_id
where s.owner = %(lmr)s order by s.rule_id limit %(most)s;

-- name: list_suspended
select s.rule_id, r.name, r.owner, l.name, s.position, s.reason, s.seconds, s.at
from suspended_rules s join rules r on r.id = s.rule_id left join lmrs l on l.id = r.owner
where s.rule_id > %(after)s and not s.pending order by s.rule_id limit %(most)s;

-- name: count_suspended
select count(*) from suspended_rules where not pending or %(pending)s;

-- name: read_units
-- The ends of these suspended rules, and of rules that are counted together with them: an LMR's rules in a group that
-- match ranges of constants and were suspended together count as one.
with kept as (
    select rule_id, owner, as_of, unit, ranged, pattern, constants
    from suspended_ends where rule_id = any (%(ids)s::bigint[])
    union all
    select distinct u.rule_id, u.owner, u.as_of, u.unit, u.ranged, u.pattern, u.constants
    from suspended_ends s
    join suspended_ends u on u.owner = s.owner and u.unit = s.unit and u.as_of = s.as_of and u.ranged
    where s.rule_id = any (%(ids)s::bigint[]) and s.ranged and u.rule_id <> all (%(ids)s::bigint[]))
select k.rule_id, k.owner, k.as_of, k.unit, k.ranged, k.pattern, k.constants, s.counted_after, s.counted_up_to
from kept k join suspended_rules s on s.rule_id = k.rule_id;

-- name: suspended_ids
select rule_id from suspended_rules;

-- name: kept_patterns
select distinct pattern from suspended_ends;

-- name: end_suspension
delete from suspended_rules where rule_id = any (%(ids)s::bigint[]);

-- name: forget_kept_ends
-- The matches of suspended rules no longer count.
delete from suspended_ends;

-- name: note
insert into rule_notices (rule_id, position, kind, reason)
select id, %(position)s, %(kind)s, %(reason)s from unnest(%(ids)s::bigint[]) as n (id);
