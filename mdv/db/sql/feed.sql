-- Feeds, run by mdv/db/feed.py. The content of a resource at a position is read from the store: feeds store no content.

-- name: pin
select set_config('enable_seqscan', 'off', true), set_config('enable_hashjoin', 'off', true),
       set_config('enable_mergejoin', 'off', true), set_config('enable_material', 'off', true),
       set_config('enable_memoize', 'off', true), set_config('jit', 'off', true),
       set_config('plan_cache_mode', 'force_generic_plan', true);

-- name: stand
-- The state of the MDP and of one LMR's feed.
select s.epoch, s.position, s.last_offset, l.kept_after, l.paused, l.home, (s.replica -> 'vector')::text
from mdp_state s cross join lmrs l where l.id = %(lmr)s;

-- name: events
-- For a paused feed, one event is enough to know that events are held back.
select f."offset", f.tx, f.kind, f.resource_id, r.uri
from feed f left join resources r on r.id = f.resource_id and f.kind < 5  -- kinds 5 and 6 are about rules
where f.lmr_id = %(lmr)s and f."offset" > %(after)s
order by f."offset"
limit case when (select paused from lmrs where id = %(lmr)s) then least(%(most)s::bigint, 1) else %(most)s::bigint end;

-- name: position_before
-- The last position that an LMR has read completely, if it has read up to `after` and the next transaction is `tx`. If
-- `tx` is the result of compaction, which is the first transaction that is kept, this is the position before all the
-- transactions that were combined.
select case
    when exists (select from feed where lmr_id = %(lmr)s and "offset" <= %(after)s and tx < %(tx)s) then %(tx)s - 1
    else least(%(tx)s - 1, (select min(tx) - 1 from publications where last_offset > %(after)s)) end;

-- name: event_before
select max("offset") from feed where lmr_id = %(lmr)s and "offset" < %(offset)s;

-- name: contents
-- The classes and statements of resources as of positions, as JSON. Both are NULL for a resource that is too large for
-- one event: `pieces` reads it.
select k.n, c.is_large,
       case when not c.is_large then c.classes end, case when not c.is_large then c.statements end
from unnest(%(resources)s::bigint[], %(txs)s::bigint[]) with ordinality as k (resource_id, tx, n)
cross join lateral (
    select coalesce(max(s.rows) > %(most)s::bigint or max(s.bytes) > %(bytes)s::bigint, false) as is_large,
           json_agg(distinct t.uri collate "C") filter (where s.property_id = %(type)s and t.uri is not null)::text
               as classes,
           json_agg(json_build_array(p.uri, case
               when t.uri is not null then json_build_object('type', 'uri', 'value', t.uri)
               when s.lang is not null
                   then json_build_object('type', 'literal', 'value', s.value, 'lang', s.lang)
               when d.uri is not null
                   then json_build_object('type', 'literal', 'value', s.value, 'datatype', d.uri)
               else json_build_object('type', 'literal', 'value', s.value) end)
               order by p.uri, t.uri, s.value, s.lang, d.uri)::text as statements
    from (select distinct property_id, target_id, value, lang, datatype_id, rows, bytes
          from (select *, count(*) over () as rows, sum(octet_length(value)) over () as bytes
                from ((select property_id, target_id, value, lang, datatype_id from filter_data f
                       where f.resource_id = k.resource_id and f.position <= k.tx limit %(most)s::bigint + 1)
                      union all
                      (select property_id, target_id, value, lang, datatype_id from filter_data_history h
                       where h.resource_id = k.resource_id and h.until_position > k.tx and h.position <= k.tx
                       limit %(most)s::bigint + 1)) every) counted) s
    join vocabulary p on p.id = s.property_id
    left join resources t on t.id = s.target_id
    left join vocabulary d on d.id = s.datatype_id) c;

-- name: pieces
-- Pieces of a resource as of a position, ordered by the hashes of its statements, starting with a hash: the number of
-- statements, the last hash, whether it is the last piece, the classes and the statements. A piece has about `size`
-- statements and `bytes` bytes of values. Statements with the same hash are in the same piece. `rows` rows are read. The
-- last hash among them is left out, since more rows may have it, unless there are no more rows.
with raw as materialized (
    select * from (
        (select hash, property_id, target_id, value, lang, datatype_id from filter_data
         where resource_id = %(resource)s and position <= %(tx)s and hash >= %(first)s
         order by hash limit %(rows)s::bigint)
        union all
        (select hash, property_id, target_id, value, lang, datatype_id from filter_data_history
         where resource_id = %(resource)s and until_position > %(tx)s and position <= %(tx)s
           and hash >= %(first)s
         order by hash limit %(rows)s::bigint)) every
    order by hash limit %(rows)s::bigint),
     extent as materialized (select count(*) < %(rows)s::bigint as is_all, max(hash) as last from raw),
     kept as (
    select distinct r.* from raw r cross join extent e where e.is_all or r.hash < e.last),
     cut as (
    select *, (rank() over (order by hash) - 1) / %(size)s::bigint
              + sum(coalesce(octet_length(value), 0)) over (order by hash) / %(bytes)s::bigint as piece
    from kept)
select count(*), max(c.hash), (select is_all from extent) and c.piece = (select max(piece) from cut),
       json_agg(distinct t.uri collate "C") filter (where c.property_id = %(type)s and t.uri is not null)::text,
       json_agg(json_build_array(p.uri, case
           when t.uri is not null then json_build_object('type', 'uri', 'value', t.uri)
           when c.lang is not null then json_build_object('type', 'literal', 'value', c.value, 'lang', c.lang)
           when d.uri is not null then json_build_object('type', 'literal', 'value', c.value, 'datatype', d.uri)
           else json_build_object('type', 'literal', 'value', c.value) end)
           order by c.hash, p.uri, t.uri, c.value, c.lang, d.uri)::text
from cut c
join vocabulary p on p.id = c.property_id
left join resources t on t.id = c.target_id
left join vocabulary d on d.id = c.datatype_id
group by c.piece
order by c.piece
limit %(pieces)s;

-- name: has_statements
-- Returns a row if a resource as of a position has a statement with this hash or a greater one.
select 1 from filter_data where resource_id = %(resource)s and position <= %(tx)s and hash >= %(first)s
union all
select 1 from filter_data_history
where resource_id = %(resource)s and until_position > %(tx)s and position <= %(tx)s and hash >= %(first)s
limit 1;

-- name: schema_at
select version, statements, prefixes from schema_versions where position <= %(tx)s order by version desc limit 1;

-- name: reasons_of_notices
-- The reasons why rules were suspended or resumed, as of positions, with the IDs of their subscriptions.
select k.n, coalesce((select m.lasting_id from lmr_rules m where m.rule_id = k.rule_id limit 1), k.rule_id), (select r.reason from rule_notices r
             where r.rule_id = k.rule_id and r.kind = k.kind and r.position <= k.tx order by r.position desc limit 1)
from unnest(%(rules)s::bigint[], %(kinds)s::int[], %(txs)s::bigint[]) with ordinality as k (rule_id, kind, tx, n);

-- name: count_held
-- The number of events of a snapshot: described resources of the LMR's closure, selected ones of these, and suspended
-- rules.
select count(*) + count(*) filter (where reasons > 0) + (
    select count(*) from suspended_rules s
    join rule_notices n on n.rule_id = s.rule_id and n.position = s.position and n.kind = 5
    where s.owner = %(lmr)s and %(rules)s)
from lmr_resources c where lmr_id = %(lmr)s
  and exists (select from filter_data f where f.resource_id = c.resource_id)
  and (%(buckets)s::int[] is null or exists (
      select from resources r where r.id = c.resource_id
        and get_byte(sha256(convert_to(r.uri, 'UTF8')), 0) = any (%(buckets)s::int[])));

-- name: take_offsets
update mdp_state set last_offset = last_offset + %(events)s returning last_offset - %(events)s + 1;

-- name: insert_snapshot
insert into snapshots (lmr_id, tx, first_offset, events, whole)
values (%(lmr)s, %(tx)s, %(first_offset)s, %(events)s, %(whole)s)
returning id;

-- name: current_snapshot
-- A snapshot is up to date if the LMR has received no event since.
select s.id from snapshots s join lmrs l on l.id = s.lmr_id
where s.lmr_id = %(lmr)s and s.whole and l.kept_after < s.first_offset
  and not exists (select from feed f where f.lmr_id = s.lmr_id and f."offset" > s.first_offset)
order by s.id desc limit 1;

-- name: fill_snapshot
-- First the schema, then the resources of the closure, then the selected ones, then the suspended rules.
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
              and get_byte(sha256(convert_to(r.uri, 'UTF8')), 0) = any (%(buckets)s::int[])))
      union all
      select 5, s.rule_id from suspended_rules s
      join rule_notices n on n.rule_id = s.rule_id and n.position = s.position and n.kind = 5
      where s.owner = %(lmr)s and %(rules)s) event;

-- name: find_snapshot
select tx, first_offset, events from snapshots where id = %(snapshot)s and lmr_id = %(lmr)s;

-- name: snapshot_page
select e.number, e.kind, e.resource_id, r.uri
from snapshot_events e left join resources r on r.id = e.resource_id and e.kind < 5
where e.snapshot_id = %(snapshot)s and e.number >= %(first)s
order by e.number limit %(most)s;

-- name: drop_old_snapshots
-- The two newest snapshots of an LMR are kept: one that is being fetched, and one for a concurrent request.
delete from snapshots where lmr_id = %(lmr)s and id not in (
    select id from snapshots where lmr_id = %(lmr)s order by id desc limit 2);

-- name: drop_snapshots
delete from snapshots where lmr_id = %(lmr)s;

-- name: expire_events
update lmrs set kept_after = %(offset)s where id = %(lmr)s;

-- name: drop_events
delete from feed f using lmrs l where l.id = %(lmr)s and f.lmr_id = l.id and f."offset" <= l.kept_after;

-- name: checksum
-- For each bucket of URIs, the sum of the hashes of all distinct statements and of the marks of selected resources.
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
-- The offset up to which events exceed the limits of age or number. It is always the end of a transaction.
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
-- `compact` joins many rows with many rows, so nested loops are disabled against the planner's estimates.
select set_config('enable_nestloop', 'off', true), set_config('statement_timeout', '60s', true);

-- name: compact
-- Combine all events of an LMR into its last transaction. For each resource, only the last event about its content and
-- the last event about its selection are kept; a deletion is both. A put of a resource that has left the closure is
-- dropped, since the resource may no longer exist.
with every as (
    select "offset", kind, resource_id, max(tx) over () as tx,
           max("offset") filter (where kind in (0, 1, 2)) over (partition by resource_id) as last_said,
           max("offset") filter (where kind in (1, 3, 4)) over (partition by resource_id) as last_selected,
           max("offset") filter (where kind in (5, 6)) over (partition by resource_id) as last_noticed
    from feed where lmr_id = %(lmr)s),
     mine as (
    select "offset", tx,
           coalesce("offset" = last_selected, false) or coalesce("offset" = last_noticed, false)
           or coalesce("offset" = last_said, false) and (kind <> 2 or exists (
               select from lmr_resources c where c.lmr_id = %(lmr)s and c.resource_id = e.resource_id offset 0)) as stays
    from every e),
     superseded as (
    delete from feed f using mine m
    where f.lmr_id = %(lmr)s and f."offset" = m."offset" and not m.stays
    returning f."offset")
update feed f set tx = m.tx from mine m
where f.lmr_id = %(lmr)s and f."offset" = m."offset" and f.tx <> m.tx and m.stays;

-- name: lags
-- The age of the first unread event of each LMR. If there are very many LMRs, of those with the oldest feed requests.
select l.name, coalesce(extract(epoch from now() - t.at), 0)::float8
from (select id, name, cursor from lmrs order by asked_at nulls first limit %(most)s) l
left join lateral (select tx from feed where lmr_id = l.id and "offset" > coalesce(l.cursor, 0)
                   order by "offset" limit 1) f on true
left join transactions t on t.position = f.tx
order by l.id;
