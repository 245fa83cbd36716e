-- Copies of whole databases, for backups.

-- name: list_all_tables
-- All tables in the schema of the database, except those of extensions.
select c.relname from pg_class c
where c.relnamespace = current_schema()::regnamespace and c.relkind in ('r', 'p')
  and not exists (select from pg_depend d where d.objid = c.oid and d.deptype = 'e')
order by 1;

-- name: list_copied_tables
-- The tables of a backup, with the columns that have stored values of their own.
select c.relname, (select array_agg(a.attname order by a.attnum) from pg_attribute a
                   where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped and a.attgenerated = '')
from pg_class c
where c.relnamespace = current_schema()::regnamespace and c.relkind in ('r', 'p') and c.relpersistence = 'p'
  and c.relname <> all(%(left_out)s)
  and not exists (select from pg_depend d where d.objid = c.oid and d.deptype = 'e')
order by 1;

-- name: estimate_rows
-- About how many rows a backup will have, by the statistics.
select coalesce(sum(greatest(c.reltuples, 0)), 0) from pg_class c
where c.relnamespace = current_schema()::regnamespace and c.relkind = 'r' and c.relname <> all(%(left_out)s);

-- name: read_sequences
-- The sequences that were used.
select sequencename, last_value from pg_sequences
where schemaname = current_schema() and last_value is not null
order by 1;

-- name: end_sessions
-- End the sessions that were connected before a moment. Those of other roles are returned and not ended.
select usename, case when pg_has_role(usesysid, 'usage') then pg_terminate_backend(pid) end
from pg_stat_activity
where datname = current_database() and backend_type = 'client backend' and pid <> pg_backend_pid()
  and backend_start < %(before)s;

-- name: list_drops
-- Statements that drop all tables, with their views, and then all functions.
select 1, format('drop table %%I cascade', c.relname) from pg_class c
where c.relnamespace = current_schema()::regnamespace and c.relkind in ('r', 'p')
  and not exists (select from pg_depend d where d.objid = c.oid and d.deptype = 'e')
union all
select 2, format('drop function %%s', p.oid::regprocedure) from pg_proc p
where p.pronamespace = current_schema()::regnamespace and p.proname like 'mdv\_%%'
order by 1, 2;

-- name: list_foreign_keys
-- Statements that drop and create each foreign key.
select format('alter table %%s drop constraint %%I', k.conrelid::regclass, k.conname),
       format('alter table %%s add constraint %%I %%s', k.conrelid::regclass, k.conname, pg_get_constraintdef(k.oid))
from pg_constraint k
where k.contype = 'f' and k.connamespace = current_schema()::regnamespace;

-- name: list_indexes
-- Statements that drop and create each index that is not that of a constraint.
select format('drop index %%s', i.indexrelid::regclass), pg_get_indexdef(i.indexrelid)
from pg_index i join pg_class c on c.oid = i.indrelid
where c.relnamespace = current_schema()::regnamespace
  and not exists (select from pg_constraint k where k.conindid = i.indexrelid);

-- name: find_content
-- What a database contains besides the LMR of `mdv up`, in words.
select number, name from (
    select position, 'transactions' from mdp_state
    union all select count(*), 'documents' from documents
    union all select count(*), 'waiting changes' from jobs where state = 'queued'
    union all select count(*), 'rules' from rules
    union all select count(*), 'LMRs' from lmrs where name <> %(own_lmr)s
    union all select count(*), 'tokens' from tokens where role <> 'lmr'
    union all select count(*), 'users' from users
    union all select count(*), 'webhooks' from webhooks
    union all select count(*), 'saved queries' from saved_queries
    union all select count(*), 'processes' from real_processes
) found (number, name)
where number > 0
limit 1;
