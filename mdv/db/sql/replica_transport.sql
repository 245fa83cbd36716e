-- The log of a backbone over logical replication of Postgres: rows of peers arrive in replica_inbox.

-- name: read_wal_level
show wal_level;

-- name: create_divert_function
-- Called for every row of replica_log that a subscription brings: it goes to the inbox instead.
create or replace function mdv_divert_operation() returns trigger language plpgsql set search_path from current as $$
begin
    insert into replica_inbox (subscription, life, seq, chain, body, signature)
    values (coalesce((select subname from pg_stat_subscription where pid = pg_backend_pid() limit 1), ''),
            new.life, new.seq, new.chain, new.body, new.signature);
    perform pg_notify('mdv_replica_inbox', '');
    return null;
end $$;

-- name: create_divert_trigger
create or replace trigger divert_operation before insert on replica_log
for each row execute function mdv_divert_operation();

-- name: enable_divert_trigger
-- It fires for replicated rows only.
alter table replica_log enable replica trigger divert_operation;

-- name: has_publication
select exists (select from pg_publication where pubname = %(name)s);

-- name: list_subscriptions
select subname from pg_subscription
where subdbid = (select oid from pg_database where datname = current_database()) and subname like 'mdv\_bb\_%%';

-- name: find_slot
-- A slot of this database, and whether it still holds what its subscriber needs.
select wal_status is distinct from 'lost' and invalidation_reason is null from pg_replication_slots where slot_name = %(name)s;

-- name: create_slot
select pg_create_logical_replication_slot(%(name)s, 'pgoutput');

-- name: end_slot
-- End the process that uses a slot.
select pg_terminate_backend(active_pid, 5000) from pg_replication_slots where slot_name = %(name)s and active_pid is not null;

-- name: drop_slot
select pg_drop_replication_slot(slot_name) from pg_replication_slots where slot_name = %(name)s;

-- name: read_inbox
-- Operations in the order of their arrival, up to a size.
select number, subscription, life, seq, chain, body, signature
from (
    select *, sum(length(body)) over (order by number) - length(body) as before
    from (select * from replica_inbox order by number limit %(most)s) few
) sized
where before < %(bytes)s order by number;

-- name: delete_from_inbox
delete from replica_inbox where number = any (%(numbers)s::bigint[]);
