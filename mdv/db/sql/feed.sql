-- Reading the feeds. mdv/db/feed.py names the statements. What a resource was at some position the store knows: no
-- content is kept for the feeds.

-- name: pin
select set_config('enable_seqscan', 'off', true), set_config('enable_hashjoin', 'off', true),
       set_config('enable_mergejoin', 'off', true), set_config('enable_material', 'off', true),
       set_config('enable_memoize', 'off', true), set_config('jit', 'off', true),
       set_config('plan_cache_mode', 'force_generic_plan', true);

-- name: stand
-- Where the MDP and one LMR's feed stand, at one moment.
select s.epoch, s.position, s.last_offset, l.kept_after, l.paused
from mdp_state s cross join lmrs l where l.id = %(lmr)s;

-- name: events
-- Of a feed that is paused one is enough to know that something is held back.
select f."offset", f.tx, f.kind, f.resource_id, r.uri
from feed f left join resources r on r.id = f.resource_id
where f.lmr_id = %(lmr)s and f."offset" > %(after)s
order by f."offset"
limit case when (select paused from lmrs where id = %(lmr)s) then least(%(most)s::bigint, 1) else %(most)s::bigint end;

-- name: position_before
-- The last position of which an LMR that has read up to `after` was told all, where transaction `tx` comes next. Before
-- what was compacted, which is the first that is kept, that is before all that became part of it.
select case
    when exists (select from feed where lmr_id = %(lmr)s and "offset" <= %(after)s and tx < %(tx)s) then %(tx)s - 1
    else least(%(tx)s - 1, (select min(tx) - 1 from publications where last_offset > %(after)s)) end;

-- name: event_before
select max("offset") from feed where lmr_id = %(lmr)s and "offset" < %(offset)s;

-- name: contents
-- Resources as of positions: their classes, and their statements as JSON.
select k.n, c.classes, c.statements
from unnest(%(resources)s::bigint[], %(txs)s::bigint[]) with ordinality as k (resource_id, tx, n)
cross join lateral (
    select json_agg(distinct t.uri collate "C") filter (where s.property_id = %(type)s and t.uri is not null)::text
               as classes,
           json_agg(json_build_array(p.uri, case
               when t.uri is not null then json_build_object('type', 'uri', 'value', t.uri)
               when s.lang is not null
                   then json_build_object('type', 'literal', 'value', s.value, 'lang', s.lang)
               when d.uri is not null
                   then json_build_object('type', 'literal', 'value', s.value, 'datatype', d.uri)
               else json_build_object('type', 'literal', 'value', s.value) end)
               order by p.uri, t.uri, s.value, s.lang, d.uri)::text as statements
    from (select property_id, target_id, value, lang, datatype_id from filter_data f
          where f.resource_id = k.resource_id and f.position <= k.tx
          union
          select property_id, target_id, value, lang, datatype_id from filter_data_history h
          where h.resource_id = k.resource_id and h.until_position > k.tx and h.position <= k.tx) s
    join vocabulary p on p.id = s.property_id
    left join resources t on t.id = s.target_id
    left join vocabulary d on d.id = s.datatype_id) c;

-- name: schema_at
select version, statements, prefixes from schema_versions where position <= %(tx)s order by version desc limit 1;

-- name: count_held
-- How many events a snapshot takes: what is said of what an LMR holds, and which of that it selects.
select count(*) + count(*) filter (where reasons > 0)
from lmr_resources c where lmr_id = %(lmr)s
  and exists (select from filter_data f where f.resource_id = c.resource_id)
  and (%(buckets)s::int[] is null or exists (
      select from resources r where r.id = c.resource_id
        and get_byte(sha256(convert_to(r.uri, 'UTF8')), 0) = any (%(buckets)s::int[])));

-- name: take_offsets
update mdp_state set last_offset = last_offset + %(events)s returning last_offset - %(events)s + 1;

-- name: note_snapshot
insert into snapshots (lmr_id, tx, first_offset, events, whole)
values (%(lmr)s, %(tx)s, %(first_offset)s, %(events)s, %(whole)s)
returning id;

-- name: present_snapshot
-- A snapshot after which an LMR was told of nothing is still what it holds.
select s.id from snapshots s join lmrs l on l.id = s.lmr_id
where s.lmr_id = %(lmr)s and s.whole and l.kept_after < s.first_offset
  and not exists (select from feed f where f.lmr_id = s.lmr_id and f."offset" > s.first_offset)
order by s.id desc limit 1;

-- name: fill_snapshot
-- First the schema, then what it holds, then which of that it selects.
insert into snapshot_events (snapshot_id, number, kind, resource_id)
select %(snapshot)s, 0, 0, null
union all
select %(snapshot)s, row_number() over (order by kind, resource_id), kind, resource_id
from (select k.kind, c.resource_id
      from lmr_resources c
      cross join (values (2), (4)) as k (kind)
      where c.lmr_id = %(lmr)s and (k.kind = 2 or c.reasons > 0)
        and exists (select from filter_data f where f.resource_id = c.resource_id)
        and (%(buckets)s::int[] is null or exists (
            select from resources r where r.id = c.resource_id
              and get_byte(sha256(convert_to(r.uri, 'UTF8')), 0) = any (%(buckets)s::int[])))) event;

-- name: find_snapshot
select tx, first_offset, events from snapshots where id = %(snapshot)s and lmr_id = %(lmr)s;

-- name: snapshot_page
select e.number, e.kind, e.resource_id, r.uri
from snapshot_events e left join resources r on r.id = e.resource_id
where e.snapshot_id = %(snapshot)s and e.number >= %(first)s
order by e.number limit %(most)s;

-- name: drop_old_snapshots
-- Of an LMR's snapshots, the two youngest are kept: the one being fetched, and one for whoever asks at the same time.
delete from snapshots where lmr_id = %(lmr)s and id not in (
    select id from snapshots where lmr_id = %(lmr)s order by id desc limit 2);

-- name: drop_snapshots
delete from snapshots where lmr_id = %(lmr)s;

-- name: end_events
update lmrs set kept_after = %(offset)s where id = %(lmr)s;

-- name: drop_events
delete from feed f using lmrs l where l.id = %(lmr)s and f.lmr_id = l.id and f."offset" <= l.kept_after;

-- name: checksum
-- By bucket of the URI, the sum of the hashes of all distinct statements, and of the marks of what is selected.
select get_byte(sha256(convert_to(r.uri, 'UTF8')), 0) as bucket,
       sum(s.total + case when c.reasons > 0 then m.mark else 0 end)
from lmr_resources c
join resources r on r.id = c.resource_id
cross join lateral (
    select sum(d.hash) as total
    from (select distinct f.hash, f.property_id, f.target_id, f.value, f.lang, f.datatype_id
          from filter_data f where f.resource_id = c.resource_id) d) s
cross join lateral (
    select ('x' || encode(substr(sha256('selected'::bytea || '\x00'::bytea || convert_to(r.uri, 'UTF8')), 1, 8), 'hex')
           )::bit(64)::bigint as mark) m
where c.lmr_id = %(lmr)s and s.total is not null
group by bucket;

-- name: published_after
select tx, lmrs from publications where tx > %(tx)s order by tx;

-- name: boundary
-- The offset up to which events are too old, or too many, to be kept: always where a transaction ends.
select greatest(
    (select max(last_offset) from publications where at < now() - make_interval(secs => %(seconds)s)),
    (select max(p.last_offset) from publications p where p.last_offset <= (
        select f."offset" from feed f where f.lmr_id = %(lmr)s order by f."offset" desc offset %(events)s limit 1)));

-- name: trim
with gone as (delete from feed where lmr_id = %(lmr)s and "offset" <= %(boundary)s returning "offset"),
     last as (select max("offset") as "offset", count(*) as events from gone),
     trimmed as (
    update lmrs set kept_after = last."offset" from last where id = %(lmr)s and kept_after < last."offset")
select events from last;

-- name: trim_publications
delete from publications where at < now() - make_interval(secs => %(seconds)s);

-- name: drop_stale_snapshots
delete from snapshots where at < now() - make_interval(secs => %(seconds)s);

-- name: largest_feeds
select lmr_id, count(*) from feed group by lmr_id having count(*) > %(most)s;

-- name: count_events
select count(*) from feed where lmr_id = %(lmr)s;

-- name: by_hash
-- Many rows are joined with as many: never one by one, whatever the planner thinks of how many there are.
select set_config('enable_nestloop', 'off', true), set_config('statement_timeout', '60s', true);

-- name: compact
-- All that is kept for an LMR becomes one transaction, the last: of a resource only what was last said of it, and whether
-- it is selected, is left. A deletion says both. What left the LMR, which nobody is told, is not put: it may be gone by now.
with every as (
    select "offset", kind, resource_id, max(tx) over () as tx,
           max("offset") filter (where kind in (0, 1, 2)) over (partition by resource_id) as last_said,
           max("offset") filter (where kind in (1, 3, 4)) over (partition by resource_id) as last_selected
    from feed where lmr_id = %(lmr)s),
     mine as (
    select "offset", tx,
           coalesce("offset" = last_selected, false) or coalesce("offset" = last_said, false) and (kind <> 2 or exists (
               select from lmr_resources c where c.lmr_id = %(lmr)s and c.resource_id = e.resource_id offset 0)) as stays
    from every e),
     superseded as (
    delete from feed f using mine m
    where f.lmr_id = %(lmr)s and f."offset" = m."offset" and not m.stays
    returning f."offset")
update feed f set tx = m.tx from mine m
where f.lmr_id = %(lmr)s and f."offset" = m."offset" and f.tx <> m.tx and m.stays;

-- name: lags
-- How old the first event is that each LMR has not asked beyond; of very many, those that have not asked for longest.
select l.name, coalesce(extract(epoch from now() - t.at), 0)::float8
from (select id, name, cursor from lmrs order by asked_at nulls first limit %(most)s) l
left join lateral (select tx from feed where lmr_id = l.id and "offset" > coalesce(l.cursor, 0)
                   order by "offset" limit 1) f on true
left join transactions t on t.position = f.tx
order by l.id;

-- name: one_by_one
-- What is bounded is looked up row by row, and neither searched for nor gathered whole before.
select set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'off', true),
       set_config('jit', 'off', true);

-- name: progress
-- How LMRs get on: a few looks into indexes for each, nothing counted beyond a bound.
select l.id,
       (select count(*) from (select from rules where owner = l.id limit %(most)s::bigint + 1) r),
       (select count(*) from (select from lmr_resources where lmr_id = l.id limit %(most)s::bigint + 1) h),
       (select count(*) from (select from lmr_resources where lmr_id = l.id and reasons > 0
                              limit %(most)s::bigint + 1) s),
       (select count(*) from (select from feed where lmr_id = l.id limit %(most)s::bigint + 1) k),
       (select count(*) from (select from feed where lmr_id = l.id and "offset" > coalesce(l.cursor, 0)
                              limit %(most)s::bigint + 1) b),
       t.at, coalesce(l.cursor < l.kept_after, false)
from lmrs l
left join lateral (select tx from feed where lmr_id = l.id and "offset" > coalesce(l.cursor, 0)
                   order by "offset" limit 1) f on true
left join transactions t on t.position = f.tx
where l.id = any (%(lmrs)s::bigint[]);
