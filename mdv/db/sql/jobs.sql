-- The queue. mdv/db/jobs.py names the statements. Redis carries the wake-up; the truth is here.

-- name: add
-- A job that comes, unless very many about the same thing wait already; what it cannot overtake, an earlier one about the
-- same thing, becomes as urgent.
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
-- Take waiting jobs for this transaction, with what each weighs: of one stretch of priorities, or, where nothing is to be
-- had there, of another. Of several about one thing only the first is taken, so that they are carried out in the order
-- they came; one that waits for another attempt holds up those behind it.
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

-- name: claim_known
-- The same for jobs that are known.
select j.id, j.kind, j.uri, j.body, j.media_type, j.options, j.attempts, j.priority, j.request,
       coalesce((select times from begun_jobs where job_id = j.id), 0), extract(epoch from now() - j.created_at)::float8
from jobs j where j.id = any(%(ids)s) and j.state = 'queued' order by j.number for update of j skip locked;

-- name: begin
-- Jobs that a worker takes in hand: committed before it does, so that its death leaves a trace.
insert into begun_jobs (job_id, times) select unnest(%(ids)s::uuid[]), 1
on conflict (job_id) do update set times = begun_jobs.times + 1;

-- name: let_go
delete from begun_jobs where job_id = any(%(ids)s);

-- name: pin
select set_config('enable_seqscan', 'off', true), set_config('enable_hashjoin', 'off', true),
       set_config('enable_mergejoin', 'off', true);

-- name: end
-- How claimed jobs ended. The body of a dead letter is kept, so that it can be tried again.
update jobs j
set state = e.state, result = e.result, problem = e.problem, attempts = j.attempts + 1, ended_at = clock_timestamp(),
    body = case when e.state = 'dead' then j.body end
from unnest(%(ids)s::uuid[], %(states)s::text[], %(results)s::jsonb[], %(problems)s::jsonb[])
    as e (id, state, result, problem)
where j.id = e.id;

-- name: postpone
-- An attempt at a claimed job failed by no fault of its document: it waits a while.
update jobs set attempts = attempts + 1, problem = %(problem)s, not_before = now() + %(seconds)s * interval '1 second'
where id = %(id)s;

-- name: read
-- A row's xmax is the transaction that locks it, or one that did so and has ended; a running one locks its number.
select j.id, j.number, j.kind, case when j.state = 'dead' then 'failed'
           when j.state = 'queued' and exists (
               select from pg_locks held where held.locktype = 'transactionid' and held.transactionid = j.xmax
                   and held.granted) then 'running'
           else j.state end,
       j.uri, j.result, j.problem, j.created_at, j.ended_at, j.attempts, j.priority, j.request, j.not_before,
       j.state = 'dead'
from jobs j where j.id = any(%(ids)s) order by j.number desc;

-- name: retry
-- A dead letter waits again.
update jobs set state = 'queued', attempts = 0, not_before = now(), ended_at = null, problem = null
where id = %(id)s and state = 'dead';

-- name: newer
-- Whether a job that came later about the same thing waits, or was carried out.
select exists (select from jobs later join jobs j on j.id = %(id)s
               where later.uri = j.uri and later.number > j.number and later.state in ('queued', 'done'));

-- name: age
-- Who has waited for a minute becomes more urgent, within its half: nobody is passed by for ever.
update jobs set priority = priority - 1
where id in (select id from jobs where state = 'queued' and priority not in (%(urgent)s, %(patient)s)
                 and created_at < now() - interval '1 minute' for update skip locked);

-- name: waiting
-- How much waits, counted up to a limit, for how long the longest, and how much of it is each caller's.
with counted as materialized (
    select coalesce(octet_length(body), 0) as size, created_at, caller from jobs where state = 'queued' limit %(most)s)
select count(*), coalesce(sum(size), 0)::bigint, coalesce(extract(epoch from now() - min(created_at)), 0)::float8,
       coalesce((select jsonb_object_agg(caller, jobs) from (
           select caller, count(*) as jobs from counted group by caller) c), '{}')
from counted;

-- name: forget
-- Jobs that ended long ago, and the keys that stood for them. Dead letters are kept four times as long.
delete from jobs where id in (
    select id from jobs
    where ended_at < now() - %(seconds)s * interval '1 second' * case state when 'dead' then 4 else 1 end
    order by number limit %(most)s);
