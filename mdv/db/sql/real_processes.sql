-- Processes of programs, used by mdv/db/real/processes.py and mdv/db/real/process_waits.py. A worker that runs a slice locks the row of
-- real_states, which nothing else writes. It locks the row of real_processes only after it has the lock of the MDP, so that a
-- transaction that wakes or stops the process does not wait for it.

-- name: pin
-- Use index lookups: the statements read a few rows of tables that may be large.
select set_config('enable_seqscan', 'off', true), set_config('enable_hashjoin', 'off', true),
       set_config('enable_mergejoin', 'off', true), set_config('jit', 'off', true);

-- name: start
-- A process, or one that another process spawned.
with next as materialized (
    select nextval(pg_get_serial_sequence('real_processes', 'id')) as id
), new as (
    insert into real_processes (id, iri, root, parent, action, code, prefixes, binding, into_document, settings, permissions,
                                caller, token_id, priority, is_followed, keeps_solutions, solution_limit, position, read_at,
                                ready_at)
    select id, %(iri)s::text, coalesce(%(root)s::bigint, id), %(parent)s::bigint, %(action)s::text, %(code)s::text, %(prefixes)s::jsonb, %(binding)s::json, %(into)s::text,
            %(settings)s::jsonb, %(permissions)s::jsonb, %(caller)s::text, %(token)s::int, %(priority)s::smallint,
            %(is_followed)s::boolean, %(keeps_solutions)s::boolean, %(solution_limit)s::bigint, %(position)s::bigint,
            case when %(is_followed)s::boolean then now() end,
            now() + greatest(%(priority)s::int - 3, 0) * interval '0.2 s'
    from next
    returning id
)
insert into real_states (process_id, version, checkpoint) select id, 0, 'null' from new returning process_id;

-- name: count_live
-- Processes of a caller, and of a root, that have not ended. Both are counted up to a limit.
select (select count(*) from (select from real_processes where caller = %(caller)s::text and ended_at is null
                              limit %(most)s::int) c),
       (select count(*) from (select from real_processes where root = %(root)s::bigint and ended_at is null
                              limit %(most)s::int) r);

-- name: wake_due
-- Make processes ready whose time has come, or whose reader has gone.
with due as (
    select id from real_processes where state = 'waiting' and wake_at <= now() and wake_at is not null
    order by wake_at limit 1000 for no key update skip locked
)
update real_processes p set state = 'ready', ready_at = now(), wake_at = null from due where p.id = due.id;

-- name: stop_unread
-- Ask processes to stop whose reader has gone without a word.
with gone as (
    select id from real_processes
    where ended_at is null and is_followed and not stop_asked and read_at < now() - %(seconds)s::float8 * interval '1 s'
    for no key update skip locked
)
update real_processes p
set stop_asked = true, wake_at = null, ready_at = now(),
    state = case when p.state in ('waiting', 'calling', 'full') then 'ready' else p.state end
from gone where p.id = gone.id;

-- name: stop_revoked
-- Make processes ready whose token was revoked or has expired, so that a worker ends them.
update real_processes
set state = 'ready', ready_at = now(), wake_at = null
where ended_at is null and state in ('waiting', 'calling', 'full')
  and token_id = any (array(select id from tokens where revoked_at is not null or expires_at <= now()));

-- name: next_due
-- Seconds until the next process becomes ready by itself.
select extract(epoch from min(wake_at) - now())::float8 from real_processes where wake_at is not null and state = 'waiting';

-- name: claim
-- The ready process whose turn it is, by its ID. Other workers skip it until the end of the transaction. It may have been
-- another worker's until now, so it is read after this.
select s.process_id
from real_processes p join real_states s on s.process_id = p.id
where p.state = 'ready' and (%(iri)s::text is null or p.iri = %(iri)s::text)
order by p.ready_at limit 1
for no key update of s skip locked;

-- name: claim_started
-- The same among those that no other process has spawned: first those that a request follows.
select s.process_id
from real_processes p join real_states s on s.process_id = p.id
where p.state = 'ready' and p.parent is null
order by p.priority, p.ready_at limit 1
for no key update of s skip locked;

-- name: read_claimed
-- A claimed process, if it is still ready.
select p.id, p.iri, p.root, p.parent, p.action, p.code, p.prefixes, p.binding, p.into_document, p.settings, p.permissions,
       p.caller, p.token_id, p.priority, p.is_followed, p.keeps_solutions, p.solution_limit, p.position, p.steps, p.effects,
       p.added, p.removed, p.solutions, p.read_solutions, p.slices, p.seconds, p.stop_asked, p.message, p.failures,
       s.checkpoint,
       p.token_id is null or exists (
           select from tokens t
           where t.id = p.token_id and t.revoked_at is null and (t.expires_at is null or t.expires_at > now())),
       p.is_taker
from real_processes p join real_states s on s.process_id = p.id
where p.id = %(id)s::bigint and p.state = 'ready';

-- name: read_for_commit
-- The state of a process after the lock is taken: it may have been stopped meanwhile.
select state, stop_asked, message, read_solutions from real_processes where id = %(id)s::bigint for no key update;

-- name: read_under_lock
-- The same, with the locks against programs.
select p.state, p.stop_asked, p.message, p.read_solutions,
       (select json_agg(json_build_array(id, document_prefix, subject, property, object) order by id) from write_locks)
from real_processes p where p.id = %(id)s::bigint for no key update of p;

-- name: is_active
select exists (select from real_processes where iri = %(iri)s::text and ended_at is null);

-- name: read_locks
select id, document_prefix, subject, property, object from write_locks order by id;

-- name: changes_after
-- The statements that documents gained and lost after a position, of these properties (or of all).
select d.uri, s.uri, v.uri, t.uri, f.value, f.lang, y.uri, f.is_added
from (
    select document_id, resource_id, property_id, target_id, value, lang, datatype_id, true as is_added
    from filter_data
    where position > %(position)s::bigint and (%(any)s::boolean or property_id = any (%(properties)s::int[]))
    union all
    select document_id, resource_id, property_id, target_id, value, lang, datatype_id, h.is_added
    from filter_data_history f cross join (values (true), (false)) h (is_added)
    where until_position > %(position)s::bigint and (%(any)s::boolean or property_id = any (%(properties)s::int[]))
      and (f.position > %(position)s::bigint or not h.is_added)
    limit %(most)s::int
) f
cross join lateral (select uri from documents d where d.id = f.document_id offset 0) d
cross join lateral (select uri from resources r where r.id = f.resource_id offset 0) s
cross join lateral (select uri from vocabulary v where v.id = f.property_id offset 0) v
left join lateral (select uri from resources r where r.id = f.target_id offset 0) t on true
left join lateral (select uri from vocabulary v where v.id = f.datatype_id offset 0) y on true;

-- name: end_slice
-- The new state of a process.
update real_processes
set state = %(state)s::text, is_taker = false, position = %(position)s::bigint, steps = %(steps)s::bigint,
    effects = %(effects)s::bigint, added = added + %(added)s::bigint, removed = removed + %(removed)s::bigint,
    solutions = %(solutions)s::bigint, slices = slices + 1, conflicts = conflicts + %(conflicts)s::bigint, failures = 0,
    seconds = seconds + %(seconds)s::float8, problem = %(problem)s::jsonb, awaits = %(awaits)s::jsonb,
    wake_at = to_timestamp(%(wake_at)s::float8), wait_deadline = to_timestamp(%(wake_at)s::float8),
    ready_at = clock_timestamp() + greatest(priority - 3, 0) * interval '0.2 s', ran_at = clock_timestamp(),
    ended_at = case when %(state)s::text in ('done', 'failed', 'stopped') then clock_timestamp() end
where id = %(id)s::bigint;

-- name: store_state
update real_states set version = version + 1, checkpoint = %(checkpoint)s::json where process_id = %(id)s::bigint;

-- name: delete_state
delete from real_states where process_id = %(id)s::bigint;

-- name: delete_waits
delete from real_waits where process_id = any (%(ids)s::bigint[]);

-- name: insert_solutions
insert into real_solutions (process_id, number, binding)
select %(id)s::bigint, %(first)s::bigint + n - 1, binding
from json_array_elements(%(bindings)s::json) with ordinality as b (binding, n);

-- name: insert_log
insert into real_log (process_id, after_solution, kind, body)
select %(id)s::bigint, %(after)s::bigint, e->>'kind', e->'body'
from json_array_elements(%(entries)s::json) with ordinality as x (e, n) order by n;

-- name: insert_waits
insert into real_waits (key, process_id, read, property_id, takes, since)
select distinct on (key) key, %(id)s::bigint, read, property_id, %(takes)s::boolean,
       (extract(epoch from clock_timestamp()) * 1000000)::bigint
from json_to_recordset(%(waits)s::json) as w (key bigint, read json, property_id int)
on conflict do nothing;

-- name: watch
-- Note the properties that a process waits for.
update mdp_state
set watched = (select array_agg(distinct w order by w) from unnest(watched || %(properties)s::int[]) w)
where not watched @> %(properties)s::int[];

-- name: is_watched_in_vain
-- True if no process waits for some watched property any more.
select exists (
    select from mdp_state, unnest(watched) w where not exists (select from real_waits r where r.property_id = w));

-- name: unwatch
update mdp_state
set watched = coalesce((select array_agg(w order by w) from unnest(watched) w
                        where exists (select from real_waits r where r.property_id = w)), '{}');

-- name: find_waiting
-- The processes that wait for changes with these keys: all readers, and of the processes that take as many as there are changes.
select w.process_id, w.read, w.takes, w.since
from unnest(%(keys)s::bigint[], %(numbers)s::int[]) as k (key, number)
cross join lateral (
    (select process_id, read, takes, since from real_waits w where w.key = k.key and not w.takes
       and exists (select from real_processes p where p.id = w.process_id and p.state = 'waiting'))
    union all
    (select process_id, read, takes, since from real_waits w where w.key = k.key and w.takes
       and exists (select from real_processes p where p.id = w.process_id and p.state = 'waiting')
     order by since, process_id limit k.number)
) w;

-- name: wake
update real_processes
set state = 'ready', ready_at = clock_timestamp() + greatest(priority - 3, 0) * interval '0.2 s', wake_at = null,
    is_taker = id = any (%(takers)s::bigint[])
where id = any (%(ids)s::bigint[]) and state = 'waiting';

-- name: wake_takers
-- Wake the processes that take: one that was woken in their place has ended.
with takers as (
    select distinct process_id from real_waits w where takes
)
update real_processes p
set state = 'ready', ready_at = clock_timestamp(), wake_at = null
from takers where p.id = takers.process_id and p.state = 'waiting';

-- name: name_resources
select id, uri from resources where id = any (%(ids)s::bigint[]);

-- name: ask_to_stop
-- Ask a process to stop, or all that descend from the same one. They are made ready, so that a worker ends them.
update real_processes
set stop_asked = true, message = coalesce(%(message)s::json, message), ready_at = now(), wake_at = null,
    state = case when state in ('waiting', 'calling', 'full') then 'ready' else state end
where (iri = %(iri)s::text
       or %(family)s::boolean and root = (select r.root from real_processes r where r.iri = %(iri)s::text))
  and ended_at is null
returning id;

-- name: stop
-- Stop a process in the transaction of the process that stops it.
update real_processes
set state = 'stopped', stop_asked = true, message = %(message)s::json, ended_at = clock_timestamp(), wake_at = null,
    problem = %(problem)s::jsonb
where iri = %(iri)s::text and ended_at is null
returning id, is_taker, parent is not null;

-- name: is_ready
select exists (select from real_processes where state = 'ready');

-- name: fail
-- Count an internal error. The process sleeps and is tried again, or fails.
update real_processes
set failures = failures + 1, awaits = null, problem = %(problem)s::jsonb,
    state = case when %(problem)s::jsonb is not null then 'failed' when stop_asked then state else 'waiting' end,
    wake_at = case when %(problem)s::jsonb is null and not stop_asked
                   then clock_timestamp() + %(seconds)s::float8 * interval '1 s' end,
    ended_at = case when %(problem)s::jsonb is null then null else clock_timestamp() end
where id = %(id)s::bigint and ended_at is null;

-- name: delete_ended_states
-- The checkpoints of processes that others have stopped.
delete from real_states where process_id in (
    select s.process_id from real_states s join real_processes p on p.id = s.process_id
    where p.ended_at is not null for update of s skip locked limit 1000);

-- name: delete_old
delete from real_processes where id in (
    select p.id from real_processes p
    where p.ended_at < now() - %(seconds)s::float8 * interval '1 s'
    order by p.ended_at limit %(most)s::int for update skip locked);

-- name: delete_old_log
delete from real_log where id in (
    select id from real_log where at < now() - %(seconds)s::float8 * interval '1 s' order by id limit %(most)s::int);

-- name: read_news
-- What a reader of a process asks for: its state, and what came after the last solution and entry of the log that it has. It
-- has read the solutions up to the last one, so a process that waited for that goes on.
with process as (
    update real_processes
    set read_at = now(), read_solutions = greatest(read_solutions, least(%(solution)s::bigint, solutions)),
        state = case when state = 'full' and %(solution)s::bigint >= solutions then 'ready' else state end,
        ready_at = case when state = 'full' and %(solution)s::bigint >= solutions then now() else ready_at end
    where iri = %(iri)s::text and %(counts)s::boolean
      and (read_at is null or read_solutions < %(solution)s::bigint or read_at < now() - interval '5 s')
    returning state = 'ready' and %(solution)s::bigint > 0 as resumed
)
select p.id, p.state, p.position, p.added, p.removed, p.solutions, p.problem, p.code,
       (select json_agg(json_build_array(s.number, s.binding) order by s.number)
        from (select * from real_solutions s where s.process_id = p.id and s.number > %(solution)s::bigint
              order by number limit %(most)s::int) s),
       (select json_agg(json_build_array(l.id, l.after_solution, l.kind, l.body) order by l.id)
        from (select * from real_log l where l.process_id = p.id and l.id > %(entry)s::bigint
              order by id limit %(most_entries)s::int) l),
       (select count(*) from process where resumed)
from real_processes p where p.iri = %(iri)s::text;

-- name: note_gone
update real_processes set read_at = now() - %(seconds)s::float8 * interval '1 s'
where iri = %(iri)s::text and ended_at is null;

-- name: note_read
-- Solutions were read. A process that waited for that goes on.
update real_processes
set read_solutions = greatest(read_solutions, least(%(solution)s::bigint, solutions)), read_at = now(),
    state = case when state = 'full' then 'ready' else state end,
    ready_at = case when state = 'full' then now() else ready_at end
where iri = %(iri)s::text and read_solutions < %(solution)s::bigint
returning state;

-- name: list_commits
-- The changes of a process, by slice.
select body from real_log where process_id = %(id)s::bigint and kind = 'commit' order by id;
