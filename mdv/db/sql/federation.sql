-- name: read_site
-- What this MDP is in a federation.
select name, superpeer, url, private_key, epoch, generation, schema_version, grants, leaving, error from federation;

-- name: insert_site
insert into federation (name, superpeer, url, private_key, epoch)
values (%(name)s, %(superpeer)s, %(url)s, %(private_key)s, %(epoch)s);

-- name: set_federated
update mdp_state set federated = %(federated)s::smallint;

-- name: forget_federation
truncate federation, federation_links, federation_inbox, federation_outbox, federation_records, federation_journal,
    federation_presence, federation_invitations;

-- name: change_site
update federation set generation = generation + 1, epoch = %(epoch)s, schema_version = %(schema_version)s::int,
    leaving = %(leaving)s, error = null;

-- name: store_grants
update federation set grants = %(grants)s::jsonb;

-- name: store_error
update federation set error = %(error)s;

-- name: insert_invitation
insert into federation_invitations (digest, expires_at)
values (%(digest)s, now() + make_interval(secs => %(seconds)s::float8));

-- name: use_invitation
-- Each code can be used once.
delete from federation_invitations where digest = %(digest)s returning expires_at > now();

-- name: list_links
select name, is_superpeer, url, public_key, peer_epoch, acknowledged, received, last_exchange, error,
       (select count(*) from federation_outbox o where o.neighbour = l.name)
from federation_links l order by name;

-- name: lock_link
select name, is_superpeer, url, public_key, peer_epoch, acknowledged, received, last_exchange, error, 0
from federation_links where name = %(name)s for update;

-- name: read_link
select name, is_superpeer, url, public_key, peer_epoch, acknowledged, received, last_exchange, error, 0
from federation_links where name = %(name)s;

-- name: insert_link
insert into federation_links (name, is_superpeer, url, public_key, last_exchange)
values (%(name)s, %(is_superpeer)s, %(url)s, %(public_key)s, %(now)s::float8);

-- name: store_link
update federation_links set peer_epoch = %(peer_epoch)s, acknowledged = %(acknowledged)s::bigint,
    received = %(received)s::bigint, last_exchange = %(last_exchange)s::float8, error = null
where name = %(name)s;

-- name: store_link_error
update federation_links set error = %(error)s where name = %(name)s and error is distinct from %(error)s;

-- name: restart_links
-- After a restore from a backup: numbers start again, and old messages are dropped.
update federation_links set peer_epoch = null, acknowledged = 0, received = 0;

-- name: drop_messages
with dropped as (delete from federation_outbox)
delete from federation_inbox where kind in ('message', 'restored');

-- name: delete_link
with gone as (delete from federation_outbox where neighbour = %(name)s)
delete from federation_links where name = %(name)s;

-- name: insert_inbox
insert into federation_inbox (kind, neighbour, body)
select j.one ->> 'kind', j.one ->> 'neighbour', j.one ->> 'body'
from jsonb_array_elements(%(rows)s::jsonb) with ordinality as j (one, n) order by j.n;

-- name: read_own_inbox
-- Events of the MDP itself. They come first: their positions are before those of all that follows.
select number, kind, neighbour, body from federation_inbox
where kind not in ('message', 'restored') order by number;

-- name: read_inbox
select number, kind, neighbour, body from federation_inbox
where kind in ('message', 'restored') order by number limit %(limit)s::int;

-- name: delete_inbox
delete from federation_inbox where number = any (%(numbers)s::bigint[]);

-- name: count_inbox
select count(*) from (select from federation_inbox limit %(limit)s::int) one;

-- name: count_pending_rules
select count(*) from federation_inbox where kind = 'rule';

-- name: insert_outbox
insert into federation_outbox (neighbour, body)
select j.one ->> 'neighbour', j.one ->> 'body'
from jsonb_array_elements(%(rows)s::jsonb) with ordinality as j (one, n) order by j.n;

-- name: read_outbox
select body from federation_outbox where neighbour = %(name)s order by number limit %(limit)s::int;

-- name: acknowledge
-- Delete the first messages, which the neighbour has.
delete from federation_outbox where number in (
    select number from federation_outbox where neighbour = %(name)s order by number limit %(count)s::bigint);

-- name: find_neighbours_with_messages
select distinct neighbour from federation_outbox;

-- name: read_records
select part, key, value from federation_records;

-- name: read_timed_records
-- The records of a part, the newest first.
select key, value, at, changed_at from federation_records where part = %(part)s order by at desc limit %(limit)s::int;

-- name: read_record
select value, at, changed_at from federation_records where part = %(part)s and digest = %(digest)s;

-- name: write_records
insert into federation_records (part, digest, key, value)
select j.part, decode(j.digest, 'hex'), j.key, j.value
from jsonb_to_recordset(%(rows)s::jsonb) as j (part text, digest text, key text, value text)
on conflict (part, digest) do update set value = excluded.value, changed_at = now();

-- name: delete_records
delete from federation_records r
using jsonb_to_recordset(%(rows)s::jsonb) as j (part text, digest text)
where r.part = j.part and r.digest = decode(j.digest, 'hex');

-- name: insert_journal
insert into federation_journal (transaction, step, position, changes)
values (%(transaction)s, %(step)s::int, %(position)s::bigint, %(changes)s::jsonb)
on conflict (transaction, step) do update set position = excluded.position, changes = excluded.changes;

-- name: read_journal
select step, position, changes from federation_journal where transaction = %(transaction)s order by step desc;

-- name: find_position
select position from federation_journal where transaction = %(transaction)s and step = %(step)s::int;

-- name: clear_presence
delete from federation_presence;

-- name: count_arcs
-- Add to the numbers of arcs. Return the number before and after.
insert into federation_presence (node, arcs)
select j.node, j.arcs from jsonb_to_recordset(%(rows)s::jsonb) as j (node text, arcs bigint) order by j.node
on conflict (node) do update set arcs = federation_presence.arcs + excluded.arcs
returning node, arcs;
