-- The job queue, used by mdv/db/jobs.py.

-- name: add
-- Queue a job, unless too many jobs for the same URI are waiting. Earlier jobs for the URI run first, so they get at least
-- the same priority.
with urged as (
    update jobs set priority = %(priority)s
    where id in (select id from jobs where state = 'queued' and uri = %(uri)s and priority > %(priority)s
                 for update skip locked))
insert into jobs (kind, uri, priority, body, media_type, options, caller, request, idempotency_key, request_hash)
select %(kind)s, %(uri)s, %(priority)s, %(body)s::bytea, %(media_type)s, %(options)s::jsonb, %(caller)s, %(request)s,
       %(key)s, %(hash)s::bytea
where (select count(*) from (select from jobs where state = 'queued' and uri = %(uri)s limit %(most)s) waiting) < %(most)s
returning id;

-- name: claim
-- Claim waiting jobs with priorities in one range or, if there are none, in another range. Of several jobs for one URI
-- only the first is claimed, so that they run in the order of submission. A job that waits for its next attempt blocks
-- later jobs for the same URI.
with one as materialized (
    select j.id, j.number, j.priority, coalesce(octet_length(j.body), 0) + %(weight)s as size
    from jobs j
    where j.state = 'queued' and j.kind = any(%(kinds)s) and j.not_before <= now()
      and j.priority between %(first)s and %(last)s
      and not exists (select from jobs earlier
                      where earlier.state = 'queued' and earlier.uri = j.uri and earlier.number < j.number offset 0)
    order by j.priority, j.number limit %(most)s for update of j skip locked),
     other as materialized (
    select j.id, j.number, j.priority, coalesce(octet_length(j.body), 0) + %(weight)s as size
    from jobs j
    where j.state = 'queued' and j.kind = any(%(kinds)s) and j.not_before <= now()
      and j.priority between %(other_first)s and %(other_last)s and not exists (select from one)
      and not exists (select from jobs earlier
                      where earlier.state = 'queued' and earlier.uri = j.uri and earlier.number < j.number offset 0)
    order by j.priority, j.number limit %(most)s for update of j skip locked)
select j.id, j.kind, j.uri, j.body, j.media_type, j.options, j.attempts, j.priority, j.request, coalesce(b.times, 0),
       extract(epoch from now() - j.created_at)::float8
from (select id, number, priority, size, sum(size) over (order by priority, number) as total
      from (select * from one union all select * from other) found) c
cross join lateral (select * from jobs where id = c.id offset 0) j
left join lateral (select times from begun_jobs where job_id = c.id offset 0) b on true
where c.total <= %(bytes)s or c.total = c.size
order by c.priority, c.number;

-- name: claim_by_id
-- Claim jobs by ID.
select j.id, j.kind, j.uri, j.body, j.media_type, j.options, j.attempts, j.priority, j.request,
       coalesce((select times from begun_jobs where job_id = j.id), 0), extract(epoch from now() - j.created_at)::float8
from jobs j where j.id = any(%(ids)s) and j.state = 'queued' order by j.number for update of j skip locked;

-- name: begin
-- Record jobs that a worker is about to run. This is committed before they run, so that a crash of the worker is known.
insert into begun_jobs (job_id, times) select unnest(%(ids)s::uuid[]), 1
on conflict (job_id) do update set times = begun_jobs.times + 1;

-- name: clear_started
delete from begun_jobs where job_id = any(%(ids)s);

-- name: pin
select set_config('enable_seqscan', 'off', true), set_config('enable_hashjoin', 'off', true),
       set_config('enable_mergejoin', 'off', true);

-- name: end
-- Store the outcomes of claimed jobs. The body of a dead letter is kept, so that it can be retried.
update jobs j
set state = e.state, result = e.result, problem = e.problem, attempts = j.attempts + 1, ended_at = clock_timestamp(),
    body = case when e.state = 'dead' then j.body end
from unnest(%(ids)s::uuid[], %(states)s::text[], %(results)s::jsonb[], %(problems)s::jsonb[])
    as e (id, state, result, problem)
where j.id = e.id;

-- name: postpone
-- Count a failed attempt, and retry the job later.
update jobs set attempts = attempts + 1, problem = %(problem)s, not_before = now() + %(seconds)s * interval '1 second'
where id = %(id)s;

-- name: defer
update jobs set not_before = now() + %(seconds)s * interval '1 second' where id = %(id)s;

-- name: read
-- The xmax of a row is the transaction that locks it, or one that did and has ended. A running transaction holds a lock on
-- its own ID.
select j.id, j.number, j.kind, case when j.state = 'dead' then 'failed'
           when j.state = 'queued' and exists (
               select from pg_locks held where held.locktype = 'transactionid' and held.transactionid = j.xmax
                   and held.granted) then 'running'
           else j.state end,
       j.uri, j.result, j.problem, j.created_at, j.ended_at, j.attempts, j.priority, j.request, j.not_before,
       j.state = 'dead'
from jobs j where j.id = any(%(ids)s) order by j.number desc;

-- name: retry
-- Queue a dead letter again.
update jobs set state = 'queued', attempts = 0, not_before = now(), ended_at = null, problem = null
where id = %(id)s and state = 'dead';

-- name: newer
-- True if a later job for the same URI is waiting or done.
select exists (select from jobs later join jobs j on j.id = %(id)s
               where later.uri = j.uri and later.number > j.number and later.state in ('queued', 'done'));

-- name: age
-- Raise the priority of jobs that waited for a minute, within their half of the priorities, so that none starves.
update jobs set priority = priority - 1
where id in (select id from jobs where state = 'queued' and priority not in (%(urgent)s, %(patient)s)
                 and created_at < now() - interval '1 minute' for update skip locked);

-- name: waiting
-- The number and size of waiting jobs, up to a limit, the age of the oldest, and the number for each caller.
with counted as materialized (
    select coalesce(octet_length(body), 0) as size, created_at, caller from jobs where state = 'queued' limit %(most)s)
select count(*), coalesce(sum(size), 0)::bigint, coalesce(extract(epoch from now() - min(created_at)), 0)::float8,
       coalesce((select jsonb_object_agg(caller, jobs) from (
           select caller, count(*) as jobs from counted group by caller) c), '{}')
from counted;

-- name: delete_old
-- Delete jobs that ended long ago, with their idempotency keys. Dead letters are kept four times as long.
delete from jobs where id in (
    select id from jobs
    where ended_at < now() - %(seconds)s * interval '1 second' * case state when 'dead' then 4 else 1 end
    order by number limit %(most)s);
