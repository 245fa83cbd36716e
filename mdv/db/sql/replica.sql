-- The SQL of the backbone. Changes of documents write the log with the statements of store.sql.

-- name: find_marks
select m.document_id, m.statement, m.state
from (select distinct document_id, hash from jsonb_to_recordset(%(statements)s::jsonb) as k (document_id bigint, hash bigint)) k
cross join lateral (
    select * from statement_marks m where m.document_id = k.document_id and m.hash = k.hash offset 0) m;

-- name: find_document_marks
select document_id, statement, state from statement_marks where document_id = any (%(documents)s::bigint[]);

-- name: insert_marks
insert into statement_marks (document_id, hash, statement, state)
select document_id, hash, statement, state from jsonb_populate_recordset(null::statement_marks, %(rows)s::jsonb);

-- name: delete_marks
delete from statement_marks m
using jsonb_populate_recordset(null::statement_marks, %(rows)s::jsonb) k
where m.document_id = k.document_id and m.hash = k.hash and m.statement = k.statement;

-- name: settle_marks
-- Delete the marks of statements whose operations are all stable, and also the one of their row.
with settled as (
    select m.ctid as row
    from statement_marks m
    where not exists (
            select from jsonb_array_elements(m.state) one
            where (one ->> 1)::bigint > coalesce((%(stable)s::jsonb ->> (one ->> 0))::bigint, 0) and one ->> 0 <> '')
      and exists (
            select from filter_data f
            left join document_versions v on v.document_id = f.document_id and v.position = f.position
            where f.document_id = m.document_id and f.hash = m.hash
              and coalesce(v.origin_seq, 0) <= coalesce((%(stable)s::jsonb ->> v.origin_life)::bigint, 0))
    limit %(most)s::int
), gone as (
    delete from statement_marks m using settled s where m.ctid = s.row returning 1
)
select count(*) from gone;

-- name: add_marks
update mdp_state set marks = marks + %(more)s::bigint;

-- name: find_origins
-- The operations that wrote versions of documents at these positions.
select v.document_id, v.position, v.origin_life, v.origin_seq
from rows from (unnest(%(documents)s::bigint[]), unnest(%(positions)s::bigint[])) as k (document_id, position)
join document_versions v on v.document_id = k.document_id and v.position = k.position;

-- name: find_replicated_documents
select id, uri, version, present, content, digest, statements, replica::text, prefixes
from documents where uri = any (%(uris)s::text[]);

-- name: find_origin_times
-- When operations were applied here, by the documents that they changed.
select v.document_id, v.origin_life, v.origin_seq, t.at
from document_versions v join transactions t on t.position = v.position
where v.document_id = any (%(documents)s::bigint[]) and v.origin_seq is not null;

-- name: find_document_statements
-- The statements of documents, with the operations that wrote their rows.
select f.document_id, s.uri, p.uri, t.uri, f.value, f.lang, y.uri, f.position, v.origin_life, v.origin_seq
from filter_data f
join resources s on s.id = f.resource_id
join vocabulary p on p.id = f.property_id
left join resources t on t.id = f.target_id
left join vocabulary y on y.id = f.datatype_id
left join document_versions v on v.document_id = f.document_id and v.position = f.position
where f.document_id = any (%(documents)s::bigint[]);

-- name: list_replicated_documents
select id, uri, version, present, content, digest, statements, replica::text, prefixes
from documents where version > 0 and uri > %(after)s order by uri limit %(most)s;

-- name: list_document_sums
select uri, version, digest from documents where version > 0 and digest is not null;

-- name: list_merged_documents
-- Documents that concurrent operations have changed, or that the schema refuses.
with merged as (
    select id, uri from documents where replica ? 'merged_at' and uri > %(after)s order by uri limit %(most)s
), refused as (
    select d.id, d.uri from refused_documents r join documents d on d.id = r.document_id
    where d.uri > %(after)s order by d.uri limit %(most)s
)
select id, uri, version, present, content, digest, statements, replica::text, prefixes
from documents where id in (select id from merged union select id from refused) order by uri limit %(most)s;

-- name: add_digests
-- Give all documents their digests, when the MDP becomes a member of a backbone.
with sums as (
    select document_id, mod(mod(sum(hash::numeric), 18446744073709551616) + 18446744073709551616, 18446744073709551616) as digest,
           count(*)::int as statements
    from filter_data group by document_id
), every as (
    select d.id, coalesce(s.digest, 0) as digest, coalesce(s.statements, 0) as statements
    from documents d left join sums s on s.document_id = d.id
)
update documents d
set digest = (case when e.digest >= 9223372036854775808 then e.digest - 18446744073709551616 else e.digest end)::bigint,
    statements = e.statements, replica = '{}'
from every e where e.id = d.id;

-- name: forget_versions
-- A document was taken over from another member: its version goes on there.
delete from document_versions where document_id = any (%(documents)s::bigint[]);

-- name: read_backbone_state
select s.replica::text, s.epoch::text, b.name, b.url, b.mode, b.facts from mdp_state s, backbone b;

-- name: read_local_facts
-- What changes with every operation; the facts about the members are larger.
select replica::text from mdp_state;

-- name: insert_backbone
insert into backbone (name, url, mode, facts) values (%(name)s, %(url)s, %(mode)s, %(facts)s::jsonb);

-- name: store_facts
update backbone set facts = %(facts)s::jsonb;

-- name: store_replica
update mdp_state set replica = %(replica)s::jsonb;

-- name: list_drafts
select body from replica_drafts order by number;

-- name: delete_drafts
delete from replica_drafts;

-- name: insert_draft
insert into replica_drafts (body) values (%(body)s);

-- name: insert_operation
insert into replica_log (life, seq, chain, body, signature) values (%(life)s, %(seq)s, %(chain)s, %(body)s, %(signature)s);

-- name: list_operations
-- Operations of a life in order, up to a size.
select life, seq, chain, body, signature
from (
    select *, sum(length(body)) over (order by seq) - length(body) as before
    from (select * from replica_log where life = %(life)s and seq > %(after)s order by seq limit %(most)s) few
) sized
where before < %(bytes)s order by seq;

-- name: list_operations_beyond
select o.life, o.seq, o.chain, o.body, o.signature
from replica_log o
join jsonb_each_text(%(bounds)s::jsonb) as k (life, seq) on k.life = o.life and o.seq > k.seq::bigint
order by o.number;

-- name: cut_operations
delete from replica_log o
using jsonb_each_text(%(bounds)s::jsonb) as k (life, seq) where k.life = o.life and o.seq > k.seq::bigint;

-- name: find_chain
select chain from replica_log where life = %(life)s and seq = %(seq)s;

-- name: delete_life
delete from replica_log where life = %(life)s;

-- name: last_stable
-- The last stable operation of each life that is in the log.
select o.life, o.seq, o.chain
from jsonb_each_text(%(stable)s::jsonb) as k (life, seq)
cross join lateral (
    select life, seq, chain from replica_log o
    where o.life = k.life and o.seq <= k.seq::bigint order by seq desc limit 1) o;

-- name: delete_stable
delete from replica_log o
using jsonb_each_text(%(stable)s::jsonb) as k (life, seq) where o.life = k.life and o.seq <= k.seq::bigint;

-- name: measure_log
select count(*), coalesce(sum(length(body)), 0) from replica_log;

-- name: has_interactive_jobs
select exists (select from jobs where state = 'queued' and priority <= %(priority)s);

-- name: read_private_key
select private_key from backbone;

-- name: store_private_key
update backbone set private_key = %(private_key)s::bytea;

-- name: forget_backbone
with gone as (delete from backbone), log as (delete from replica_log), drafts as (delete from replica_drafts),
     marks as (delete from statement_marks), rules as (delete from replicated_rules),
     refused as (delete from refused_documents),
     plain as (update documents set digest = null, statements = null, replica = null where digest is not null)
update mdp_state set replica = null, marks = 0;

-- name: count_marks
select marks from mdp_state;

-- name: list_rules
select key, at, life, value, local_id, is_new from replicated_rules;

-- name: list_new_rules
select key, at, life, value, local_id, is_new from replicated_rules where is_new order by at, life, key;

-- name: store_rules
insert into replicated_rules (key, at, life, value, is_new)
select key, at, life, nullif(value, 'null'), true
from jsonb_to_recordset(%(rules)s::jsonb) as r (key text, at bigint, life text, value jsonb)
on conflict (key) do update set at = excluded.at, life = excluded.life, value = excluded.value, is_new = true;

-- name: note_rule
-- A rule is carried out here.
update replicated_rules set is_new = false, local_id = %(local_id)s::bigint where key = %(key)s;

-- name: refuse_documents
insert into refused_documents (document_id)
select id from documents where uri = any (%(uris)s::text[])
on conflict do nothing;

-- name: list_refused_documents
select d.uri from refused_documents r join documents d on d.id = r.document_id order by d.uri;

-- name: accept_documents
delete from refused_documents r using documents d where d.id = r.document_id and d.uri = any (%(uris)s::text[]);

-- name: list_counters
-- The counters of statements that are neither 0 nor 1, for a cset.
select d.uri, m.hash, m.state from statement_marks m join documents d on d.id = m.document_id;

-- name: list_documents_to_check
select id, uri, version, digest from documents
where id > %(after)s and digest is not null order by id limit %(most)s;

-- name: list_rows_to_check
-- The statements of documents with the places of their rows and the hashes that are stored.
select f.document_id, f.ctid::text, f.hash, s.uri, p.uri, t.uri, f.value, f.lang, y.uri
from filter_data f
join resources s on s.id = f.resource_id
join vocabulary p on p.id = f.property_id
left join resources t on t.id = f.target_id
left join vocabulary y on y.id = f.datatype_id
where f.document_id = any (%(documents)s::bigint[]);

-- name: mend_row
-- Give a row that was changed from outside the hash of the statement that it has now.
update filter_data set hash = %(hash)s::bigint where ctid = %(row)s::tid;

-- name: delete_row
delete from filter_data where ctid = %(row)s::tid;

-- name: last_scheduled_check
select extract(epoch from now() - max(created_at))::float from jobs
where kind in ('verify', 'repair') and kind = 'verify' and (options ->> 'scheduled')::boolean;

-- name: list_checks
select id from jobs where kind in ('verify', 'repair') order by number desc limit %(most)s;
