-- Lists of jobs, read by mdv/inspect/sql/jobs.py.

-- name: pin
-- The newest jobs are read by index. Statistics that are older than a bulk load would suggest a scan of the table.
select set_config('enable_seqscan', 'off', true), set_config('jit', 'off', true);

-- name: bursts
-- Group the newest jobs into bursts: jobs of one kind by one caller, each submitted shortly after the one before. The last
-- column has the numbers of all jobs of a small burst, or of the newest job of a larger one.
with newest as (
    select number, kind, state, created_at, ended_at, coalesce(options->>'by', caller) collate "C" as by,
           options @> '{"dry_run": true}' as dry_run
    from jobs order by number desc limit %(most)s),
marked as (
    select *, created_at - lag(created_at) over w <= %(gap)s * interval '1 second' as follows
    from newest window w as (partition by kind, by, dry_run order by number)),
numbered as (
    select *, count(*) filter (where follows is not true) over w as burst
    from marked window w as (partition by kind, by, dry_run order by number))
select kind, by, dry_run, min(number), max(number), count(*), count(*) filter (where state in ('failed', 'dead')),
       count(*) filter (where state = 'queued'), min(created_at), max(coalesce(ended_at, created_at)),
       case when count(*) < %(least)s then array_agg(number) else array[max(number)] end
from numbered group by kind, by, dry_run, burst order by max(number) desc limit %(rows)s;

-- name: ids
select id from jobs where number = any (%(numbers)s::bigint[]);

-- name: count_newest
-- The number of the newest jobs, up to a limit, and the least number among them.
select count(*), coalesce(min(number), 0) from (select number from jobs order by number desc limit %(most)s) newest;

-- name: jobs_of_burst
-- The jobs of a burst, newest first. No more jobs are read than a burst can span.
select id from (select * from jobs where number between %(first)s and least(%(last)s, %(before)s - 1)
                order by number desc limit %(most)s) j
where kind = %(kind)s and coalesce(options->>'by', caller) = %(by)s
  and options @> '{"dry_run": true}' = %(dry_run)s
  and (%(states)s::text[] is null or state = any (%(states)s::text[]))
order by number desc limit %(limit)s;

-- name: failed_jobs
-- The failed jobs and dead letters that ended in the last seconds, newest first.
select id from (
    (select id, number, ended_at from jobs where state = 'failed' and number < %(before)s
     order by number desc limit %(most)s)
    union all
    (select id, number, ended_at from jobs where state = 'dead' and number < %(before)s
     order by number desc limit %(most)s)) failed
where ended_at > now() - %(seconds)s * interval '1 second' order by number desc limit %(limit)s;
