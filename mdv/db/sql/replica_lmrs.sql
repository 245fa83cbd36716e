-- LMRs of a backbone, run by mdv/db/replica/lmrs.py: the registers that define them, and the rows made from these.

-- name: find_registers
select key, at, life, value from lmr_registers where key = any (%(keys)s::text[]);

-- name: list_registers
select key, at, life, value from lmr_registers order by key;

-- name: list_registers_of
-- The registers of the rules of an LMR.
select key, at, life, value from lmr_registers where key > %(first)s and key < %(last)s order by key;

-- name: write_registers
insert into lmr_registers (key, at, life, value)
select key, at, life, nullif(value, 'null'::jsonb)
from jsonb_to_recordset(%(rows)s::jsonb) as k (key text, at bigint, life text, value jsonb)
on conflict (key) do update set at = excluded.at, life = excluded.life, value = excluded.value;

-- name: list_unannounced
select id from lmrs where home is null and not announced order by id;

-- name: list_token_hashes
select encode(hash, 'hex') from tokens where lmr_id = %(lmr)s and revoked_at is null order by 1;

-- name: name_lmr
update lmrs set lasting_id = %(lasting_id)s where id = %(lmr)s;

-- name: note_announced
update lmrs set announced = true where id = %(lmr)s;

-- name: find_lmr
select id from lmrs where lasting_id = %(lasting_id)s;

-- name: read_place
select lasting_id, term, home from lmrs where id = %(lmr)s;

-- name: list_names
select name from lmrs;

-- name: insert_dormant
with made as (
    insert into lmrs (name, lasting_id, term, home, announced)
    values (%(name)s, %(lasting_id)s, %(term)s, %(home)s, true) returning id),
     counted as (update mdp_state set lmrs = lmrs + 1)
select id from made;

-- name: set_place
update lmrs set term = %(term)s, home = %(home)s, announced = true, cursor = null where id = %(lmr)s;

-- name: replace_tokens
with gone as (
    delete from tokens where lmr_id = %(lmr)s and encode(hash, 'hex') <> all (%(hashes)s::text[]))
insert into tokens (name, role, lmr_id, hash)
select l.name, 'lmr', l.id, decode(k.hash, 'hex')
from lmrs l cross join unnest(%(hashes)s::text[]) as k (hash)
where l.id = %(lmr)s
on conflict (hash) do nothing;

-- name: insert_rules
insert into lmr_rules (lmr_id, rule_id, lasting_id)
select %(lmr)s, k.rule_id, k.lasting_id
from rows from (unnest(%(rules)s::bigint[]), unnest(%(lasting)s::bigint[])) as k (rule_id, lasting_id)
on conflict (lmr_id, rule_id) do nothing;

-- name: list_rules
-- The rules of an LMR, with their lasting IDs if they have been announced.
select r.id, m.lasting_id, r.name, r.text
from rules r left join lmr_rules m on m.rule_id = r.id and m.lmr_id = r.owner
where r.owner = %(lmr)s and (%(rules)s::bigint[] is null or r.id = any (%(rules)s::bigint[])) order by r.id;

-- name: find_lasting_ids
select rule_id, lasting_id from lmr_rules where lmr_id = %(lmr)s and rule_id = any (%(rules)s::bigint[]);

-- name: list_lasting_ids
-- The rules whose lasting IDs are others than their own.
select rule_id, lasting_id from lmr_rules where lmr_id = %(lmr)s and rule_id <> lasting_id;

-- name: forget_rules
delete from lmr_rules where lmr_id = %(lmr)s;

-- name: forget_backbone
with gone as (delete from lmr_registers), rules as (delete from lmr_rules),
     dormant as (delete from lmrs where home is not null returning id),
     counted as (update mdp_state set lmrs = lmrs - (select count(*) from dormant)::int)
update lmrs set lasting_id = null, term = 0, announced = false where home is null;
