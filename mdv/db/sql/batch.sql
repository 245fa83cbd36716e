-- Batches, run by mdv/db/batch.py. Spark executors stage prepared documents; the Spark driver promotes them.

-- name: begin_run
insert into batch_runs (what, dry_run) values (%(what)s, %(dry_run)s) returning id;

-- name: record_heartbeat
update batch_runs set heard_at = clock_timestamp() where id = %(run)s and state = 'running' returning id;

-- name: begin_attempt
-- From now on only this attempt at the partition counts, unless a later one has started.
insert into batch_partitions (run_id, partition, attempt) values (%(run)s, %(partition)s, %(attempt)s)
on conflict (run_id, partition) do update
set attempt = excluded.attempt, chunk = -1, prepared = 0, statements = 0, fresh = 0, same = 0, unchanged = 0, refused = 0, bytes = 0,
    preparing = 0, staging = 0, waiting = 0, examples = '[]'
where batch_partitions.attempt < excluded.attempt
returning attempt;

-- name: drop_older
-- Delete chunks of earlier attempts that are not promoted yet. This waits for a chunk that is being promoted.
delete from batch_chunks where run_id = %(run)s and partition = %(partition)s and attempt < %(attempt)s;

-- name: find_registered
-- The registered ones of these documents, with the digest of the text if a batch registered the current statements.
select d.uri, d.content, s.digest, s.run_id
from documents d
left join lateral (select * from document_sources where document_id = d.id and content = d.content offset 0) s on true
where d.uri = any (array(select jsonb_array_elements_text(%(uris)s::jsonb))) and d.present;

-- name: add_counts
-- Add the counts of a chunk, unless they are already added or the attempt was replaced.
update batch_partitions
set chunk = %(chunk)s, prepared = prepared + %(prepared)s, statements = statements + %(statements)s, fresh = fresh + %(fresh)s,
    same = same + %(same)s, unchanged = unchanged + %(unchanged)s, refused = refused + %(refused)s,
    bytes = bytes + %(bytes)s, preparing = preparing + %(preparing)s, staging = staging + %(staging)s,
    waiting = waiting + %(waiting)s,
    examples = case when jsonb_array_length(examples) < %(most)s then examples || %(examples)s::jsonb else examples end
where run_id = %(run)s and partition = %(partition)s and attempt = %(attempt)s and chunk < %(chunk)s
returning attempt;

-- name: is_counted
select exists (select from batch_partitions
               where run_id = %(run)s and partition = %(partition)s and attempt = %(attempt)s and chunk >= %(chunk)s);

-- name: staged_bytes
select coalesce(sum(weight), 0)::bigint from batch_chunks where run_id = %(run)s;

-- name: claim_chunks
-- The next chunks to promote: as many as fit into the size limit, but at least one.
select c.partition, c.attempt, c.chunk, c.weight, c.body
from (select partition, attempt, chunk, sum(weight) over (order by partition, chunk) - weight as before
      from (select partition, attempt, chunk, weight from batch_chunks c
            where run_id = %(run)s
              and attempt = (select attempt from batch_partitions p where p.run_id = c.run_id and p.partition = c.partition)
            order by partition, chunk limit %(most)s) first) next
join batch_chunks c on c.run_id = %(run)s and c.partition = next.partition and c.attempt = next.attempt
    and c.chunk = next.chunk
where next.before < %(bytes)s
order by c.partition, c.chunk for update of c skip locked;

-- name: drop_chunks
delete from batch_chunks c
using unnest(%(partitions)s::int[], %(attempts)s::bigint[], %(chunks)s::int[]) as t (partition, attempt, chunk)
where c.run_id = %(run)s and c.partition = t.partition and c.attempt = t.attempt and c.chunk = t.chunk;

-- name: keep_sources
insert into document_sources (document_id, digest, content, run_id)
select d.id, t.digest, t.content, %(run)s
from unnest(%(uris)s::text[], %(digests)s::bytea[], %(contents)s::bytea[]) as t (uri, digest, content)
cross join lateral (select id from documents where uri = t.uri offset 0) d
on conflict (document_id) do update set digest = excluded.digest, content = excluded.content, run_id = excluded.run_id;

-- name: count_promoted
update batch_runs
set registered = registered + %(registered)s, changed = changed + %(changed)s, unchanged = unchanged + %(unchanged)s,
    refused = refused + %(refused)s, statements = statements + %(statements)s, transactions = transactions + 1,
    heard_at = clock_timestamp()
where id = %(run)s and state = 'running' returning id;

-- name: read_run
select r.documents, coalesce(p.prepared, 0), coalesce(p.statements, 0), coalesce(p.fresh, 0), coalesce(p.same, 0),
       coalesce(p.unchanged, 0), coalesce(p.refused, 0), coalesce(p.bytes, 0), coalesce(p.preparing, 0),
       coalesce(p.staging, 0), coalesce(p.waiting, 0), r.registered, r.changed, r.unchanged, r.refused, r.statements,
       r.transactions
from batch_runs r
cross join lateral (
    select sum(prepared)::bigint as prepared, sum(statements)::bigint as statements, sum(fresh)::bigint as fresh,
           sum(same)::bigint as same, sum(unchanged)::bigint as unchanged, sum(refused)::bigint as refused,
           sum(bytes)::bigint as bytes, sum(preparing) as preparing, sum(staging) as staging, sum(waiting) as waiting
    from batch_partitions where run_id = r.id) p
where r.id = %(run)s;

-- name: examples
select e.value from batch_partitions p cross join lateral jsonb_array_elements(p.examples) e
where p.run_id = %(run)s order by p.partition limit %(most)s;

-- name: end_run
-- The outcome of the run is kept for some time; its remaining staged chunks are deleted.
with gone as (delete from batch_chunks where run_id = %(run)s)
update batch_runs set state = %(state)s, ended_at = clock_timestamp() where id = %(run)s;

-- name: delete_run
delete from batch_runs where id = %(run)s;

-- name: delete_old_runs
-- Delete runs without a recent heartbeat, and runs that ended long ago.
delete from batch_runs
where (state = 'running' and heard_at < now() - %(silent)s * interval '1 second')
   or ended_at < now() - %(kept)s * interval '1 second';
