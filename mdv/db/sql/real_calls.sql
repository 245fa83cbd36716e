-- Requests of processes to services. A request is waiting until it is answered or has failed; it ends when a slice of its process
-- has taken the result.

-- name: insert
insert into real_calls (process_id, request, service, endpoint, body, state, reason)
values (%(process_id)s::bigint, %(request)s::text, %(service)s::text, %(endpoint)s::text, %(body)s::text, %(state)s::text,
        %(reason)s::text);

-- name: count_recent
select count(*) from real_calls where process_id = %(process_id)s::bigint and created_at > now() - interval '1 minute';

-- name: read_result
select id, request, state, reason, media_type, answer from real_calls
where process_id = %(process_id)s::bigint and state <> 'waiting' and ended_at is null order by number limit 1;

-- name: end
update real_calls set ended_at = now(), answer = null where id = %(id)s::uuid;

-- name: claim
-- The request whose turn it is. Another worker can claim it again after the lease.
with due as (
    select c.id from real_calls c join real_processes p on p.id = c.process_id
    where c.state = 'waiting' and c.not_before <= now() and p.state = 'calling'
    order by c.not_before limit 1 for no key update of c skip locked
)
update real_calls c
set attempts = attempts + 1, tried_at = now(), not_before = now() + %(lease)s::float8 * interval '1 s'
from due where c.id = due.id
returning c.id, c.process_id, c.endpoint, c.body, c.attempts;

-- name: next_due
select extract(epoch from min(c.not_before) - now())::float8
from real_calls c join real_processes p on p.id = c.process_id
where c.state = 'waiting' and p.state = 'calling';

-- name: record
-- The result of an attempt. Another worker may have claimed the request since, if the lease was over.
update real_calls
set state = %(state)s::text, status = %(status)s::smallint, reason = %(reason)s::text, media_type = %(media_type)s::text,
    answer = %(answer)s::bytea, not_before = now() + %(seconds)s::float8 * interval '1 s'
where id = %(id)s::uuid and state = 'waiting' and attempts = %(attempts)s::smallint
returning process_id;

-- name: resume
-- A process goes on when its request was answered or has failed.
update real_processes set state = 'ready', ready_at = now() where id = %(process_id)s::bigint and state = 'calling';
