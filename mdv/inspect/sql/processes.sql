-- Processes of programs, for mdv/inspect/sql/processes.py.

-- name: list_processes
select p.id, p.iri, r.iri, a.iri, p.action, p.caller, p.state, p.priority, p.into_document, p.position, p.steps, p.effects,
       p.added, p.removed, p.solutions, p.read_solutions, p.slices, p.conflicts, p.seconds, p.awaits, p.problem,
       p.stop_asked, p.message, p.created_at::text, p.ran_at::text, p.wake_at::text, p.ended_at::text,
       p.code, p.prefixes, p.binding
from real_processes p
left join real_processes r on r.id = p.root
left join real_processes a on a.id = p.parent
where p.id < coalesce(%(after)s::bigint, 9223372036854775807)
  and (%(iri)s::text is null or p.iri = %(iri)s::text)
  and (%(root)s::text is null or p.root = (select id from real_processes x where x.iri = %(root)s::text))
  and (%(caller)s::text is null or p.caller = %(caller)s::text)
  and (%(states)s::text[] is null or p.state = any (%(states)s::text[]))
order by p.id desc limit %(limit)s::int;

-- name: list_solutions
select number, binding from real_solutions
where process_id = (select id from real_processes where iri = %(iri)s::text) and number > %(after)s::bigint
order by number limit %(limit)s::int;

-- name: list_log
select id, after_solution, at::text, kind, body from real_log
where process_id = (select id from real_processes where iri = %(iri)s::text) and id > %(after)s::bigint
order by id limit %(limit)s::int;

-- name: list_live_programs
-- The programs of processes that may go on without a change by a waiting one.
select distinct code, prefixes from real_processes
where ended_at is null and (state <> 'waiting' or wake_at is not null) limit %(most)s::int;
