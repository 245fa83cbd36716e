-- The SQL of the statement store, in the order in which mdv/db/statement_store.py runs it, without the COPYs. Each statement works on all
-- documents of the run, so that the number of statements does not depend on the number of documents. Long lists of text
-- are passed as JSON, which the client writes several times faster than an array. `position + 0` keeps the planner from the
-- index on positions, which reads many rows.

-- name: lock_state
select epoch, position, schema_version, last_resource, last_document, last_rule, last_atomic_rule, graph_version,
       last_offset, lmrs, eca_version, marks, federated, watched, replica
from mdp_state for update;

-- name: lock_for_rules
-- The same, and pin plans: queries of the rule graph are planned once, with index lookups, even while it is small.
select epoch, position, schema_version, last_resource, last_document, last_rule, last_atomic_rule, graph_version,
       last_offset, lmrs, eca_version, marks, federated, watched, replica,
       set_config('enable_seqscan', 'off', true), set_config('plan_cache_mode', 'force_generic_plan', true)
from mdp_state for update;

-- name: lock_for_documents
-- The same, and pin plans: large tables are read with index lookups, even if a query is planned while they are small.
select epoch, position, schema_version, last_resource, last_document, last_rule, last_atomic_rule, graph_version,
       last_offset, lmrs, eca_version, marks, federated, watched, replica,
       set_config('enable_seqscan', 'off', true), set_config('jit', 'off', true)
from mdp_state for update;

-- name: find_documents
select id, uri, version, present, content, digest, statements, replica
from documents where uri = any (array(select jsonb_array_elements_text(%(uris)s::jsonb)));

-- name: find_resources
-- The IDs of those of these URIs that exist.
select uri, id from resources where uri = any (array(select jsonb_array_elements_text(%(uris)s::jsonb)));

-- name: find_statements
-- The stored statements of these documents.
select ctid::text, document_id, resource_id, property_id, target_id, value, lang, datatype_id, hash, position, shows,
       blank, number, instant, truth
from filter_data where document_id = any (%(documents)s::bigint[]);

-- name: find_named_statements
-- The same with the URIs of their subjects and objects, for operations of a backbone.
select f.ctid::text, f.document_id, f.resource_id, f.property_id, f.target_id, f.value, f.lang, f.datatype_id, f.hash,
       f.position, f.shows, f.blank, f.number, f.instant, f.truth, s.uri, t.uri
from filter_data f
join resources s on s.id = f.resource_id
left join resources t on t.id = f.target_id
where f.document_id = any (%(documents)s::bigint[]);

-- name: remove_statements
delete from filter_data where ctid = any (%(rows)s::tid[]);

-- name: find_others
-- Those of these statements that another document contains. Runs after the removals and before the insertions. The index
-- filter_data_resource finds each statement by its hash, however many values its property has.
select k.n
from rows from (unnest(%(resources)s::bigint[], %(properties)s::int[], %(targets)s::bigint[]),
                jsonb_array_elements_text(%(values)s::jsonb), jsonb_array_elements_text(%(langs)s::jsonb),
                unnest(%(datatypes)s::int[], %(hashes)s::bigint[]))
     with ordinality as k (resource_id, property_id, target_id, value, lang, datatype_id, hash, n)
cross join lateral (
    select from filter_data f
    where f.resource_id = k.resource_id and f.property_id = k.property_id and f.hash = k.hash
      and f.target_id is not distinct from k.target_id and f.value is not distinct from k.value
      and f.lang is not distinct from k.lang and f.datatype_id is not distinct from k.datatype_id
    limit 1
) other;

-- name: find_others_before
-- The same after all rows are written: those that were stored before this transaction, and still are.
select k.n
from rows from (unnest(%(resources)s::bigint[], %(properties)s::int[], %(targets)s::bigint[]),
                jsonb_array_elements_text(%(values)s::jsonb), jsonb_array_elements_text(%(langs)s::jsonb),
                unnest(%(datatypes)s::int[], %(hashes)s::bigint[]))
     with ordinality as k (resource_id, property_id, target_id, value, lang, datatype_id, hash, n)
cross join lateral (
    select from filter_data f
    where f.resource_id = k.resource_id and f.property_id = k.property_id and f.hash = k.hash
      and f.target_id is not distinct from k.target_id and f.value is not distinct from k.value
      and f.lang is not distinct from k.lang and f.datatype_id is not distinct from k.datatype_id
      and f.position + 0 < %(position)s::bigint
    limit 1
) other;

-- name: find_described
-- Those of these resources that still have statements. Runs after the removals and before the insertions.
select k.resource_id
from unnest(%(resources)s::bigint[]) as k (resource_id)
cross join lateral (select from filter_data f where f.resource_id = k.resource_id limit 1) other;

-- name: find_described_before
-- The same after all rows are written. The order makes the planner read one row instead of all of a resource.
select k.resource_id
from unnest(%(resources)s::bigint[]) as k (resource_id)
cross join lateral (
    select from filter_data f
    where f.resource_id = k.resource_id and f.position + 0 < %(position)s::bigint
    order by f.property_id, f.hash limit 1) other;

-- name: find_edited
-- The rows of these statements in all documents, without rows of this transaction. For each document, how many statements
-- it has, up to one more than the number of these rows.
with edited as (
    select distinct subject, property_id, hash
    from jsonb_to_recordset(%(statements)s::jsonb) as k (subject text, property_id int, hash bigint)
), found as materialized (
    select f.*
    from edited k
    cross join lateral (select id from resources r where r.uri = k.subject offset 0) r
    cross join lateral (
        select f.ctid as row, f.* from filter_data f
        where f.resource_id = r.id and f.property_id = k.property_id and f.hash = k.hash
          and f.position + 0 <= (select position from mdp_state) offset 0) f
), document as materialized (
    select d.*, c.counted
    from (select document_id, count(*) as rows from found group by document_id) n
    cross join lateral (
        select id, uri, version, present, content, digest, statements, replica from documents d
        where d.id = n.document_id offset 0) d
    cross join lateral (
        select count(*) as counted
        from (select from filter_data o where o.document_id = n.document_id limit n.rows + 1) o) c
)
select f.row::text, d.id, d.uri, d.version, d.present, d.content, d.counted, f.resource_id, f.property_id, f.target_id,
       f.value, f.lang, f.datatype_id, f.hash, f.position, f.shows, f.blank, f.number, f.instant, f.truth, d.digest,
       d.statements, d.replica
from found f join document d on d.id = f.document_id;

-- name: count_subjects
-- How many statements the subjects of these statements have, up to one more than the number of rows that contain them.
with edited as (
    select distinct subject, property_id, hash
    from jsonb_to_recordset(%(statements)s::jsonb) as k (subject text, property_id int, hash bigint)
), subject as materialized (
    select r.id, sum(n.rows) as rows
    from edited k
    cross join lateral (select id from resources r where r.uri = k.subject offset 0) r
    cross join lateral (
        select count(*) as rows from filter_data f
        where f.resource_id = r.id and f.property_id = k.property_id and f.hash = k.hash) n
    group by r.id
)
select s.id, c.statements
from subject s
cross join lateral (
    select count(*) as statements from (select from filter_data o where o.resource_id = s.id limit s.rows + 1) o) c;

-- name: find_values
-- The stored values of properties of resources in documents, without those of this transaction.
select k.document, k.subject, k.property, t.uri, v.uri, f.resource_id, f.property_id, f.target_id, f.value, f.lang,
       f.datatype_id, f.hash
from jsonb_to_recordset(%(values)s::jsonb) as k (document text, subject text, property_id int, property text)
cross join lateral (select id from documents d where d.uri = k.document offset 0) d
cross join lateral (select id from resources r where r.uri = k.subject offset 0) r
cross join lateral (
    select * from filter_data f
    where f.resource_id = r.id and f.property_id = k.property_id and f.document_id = d.id
      and f.position + 0 <= (select position from mdp_state) offset 0) f
left join lateral (select uri from resources t where t.id = f.target_id offset 0) t on true
left join lateral (select uri from vocabulary v where v.id = f.datatype_id offset 0) v on true;

-- name: find_present
-- Those of these documents that have statements.
select k.document_id
from unnest(%(documents)s::bigint[]) as k (document_id)
cross join lateral (select from filter_data f where f.document_id = k.document_id limit 1) other;

-- name: delete_rows
-- Delete statements of documents. A row is unique by its document and its statement.
delete from filter_data f
using jsonb_populate_recordset(null::filter_data, %(rows)s::jsonb) k
where f.resource_id = k.resource_id and f.property_id = k.property_id and f.hash = k.hash and f.document_id = k.document_id
  and f.target_id is not distinct from k.target_id and f.value is not distinct from k.value
  and f.lang is not distinct from k.lang and f.datatype_id is not distinct from k.datatype_id;

-- name: set_shows
update filter_data f set shows = k.shows
from jsonb_populate_recordset(null::filter_data, %(rows)s::jsonb) k
where f.resource_id = k.resource_id and f.property_id = k.property_id and f.hash = k.hash and f.document_id = k.document_id
  and f.target_id is not distinct from k.target_id and f.value is not distinct from k.value
  and f.lang is not distinct from k.lang and f.datatype_id is not distinct from k.datatype_id;

-- name: delete_history
delete from filter_data_history f
using jsonb_populate_recordset(null::filter_data_history, %(rows)s::jsonb) k
where f.until_position = %(position)s::bigint and f.resource_id = k.resource_id and f.property_id = k.property_id
  and f.hash = k.hash and f.document_id = k.document_id
  and f.target_id is not distinct from k.target_id and f.value is not distinct from k.value
  and f.lang is not distinct from k.lang and f.datatype_id is not distinct from k.datatype_id;

-- name: set_hides
update filter_data_history f set hides = k.hides
from jsonb_populate_recordset(null::filter_data_history, %(rows)s::jsonb) k
where f.until_position = %(position)s::bigint and f.resource_id = k.resource_id and f.property_id = k.property_id
  and f.hash = k.hash and f.document_id = k.document_id
  and f.target_id is not distinct from k.target_id and f.value is not distinct from k.value
  and f.lang is not distinct from k.lang and f.datatype_id is not distinct from k.datatype_id;

-- name: insert_resources
insert into resources (id, uri)
select id, uri from jsonb_populate_recordset(null::resources, %(rows)s::jsonb);

-- name: insert_statements
insert into filter_data (document_id, resource_id, property_id, target_id, value, lang, datatype_id, hash, position,
                         shows, blank, number, instant, truth)
select document_id, resource_id, property_id, target_id, value, lang, datatype_id, hash, position, shows, blank, number,
       instant, truth
from jsonb_populate_recordset(null::filter_data, %(rows)s::jsonb);

-- name: insert_history
insert into filter_data_history (document_id, resource_id, property_id, target_id, value, lang, datatype_id, hash,
                                 position, shows, blank, number, instant, truth, until_position, hides)
select document_id, resource_id, property_id, target_id, value, lang, datatype_id, hash, position, shows, blank, number,
       instant, truth, until_position, hides
from jsonb_populate_recordset(null::filter_data_history, %(rows)s::jsonb);

-- name: set_content
update documents set content = %(content)s where uri = %(uri)s;

-- name: set_last_resource
update mdp_state set last_resource = %(last)s::bigint;

-- name: keep_documents
-- Store the documents and their versions, and advance the state of the MDP.
with item as (
    select id, uri, version, present, content,
           coalesce(prefixes, (select o.prefixes from documents o where o.id = d.id), '{}') as prefixes,
           inserted, updated, deleted, unchanged, cause, agent, changed_by
    from jsonb_to_recordset(%(documents)s::jsonb) as d (
        id bigint, uri text, version int, present boolean, content text, prefixes jsonb,
        inserted int, updated int, deleted int, unchanged int, cause text, agent text, changed_by text)
), document as (
    insert into documents (id, uri, version, present, content, prefixes, position)
    select id, uri, version, present, decode(content, 'hex'), prefixes, %(position)s from item
    on conflict (id) do update
    set version = excluded.version, present = excluded.present, content = excluded.content,
        prefixes = excluded.prefixes, position = excluded.position
), version as (
    insert into document_versions
        (document_id, version, position, present, prefixes, inserted, updated, deleted, unchanged, cause, agent,
         changed_by)
    select id, version, %(position)s, present, prefixes, inserted, updated, deleted, unchanged, cause, agent, changed_by
    from item
), one as (
    insert into transactions (position, cause) values (%(position)s, 'documents')
)
update mdp_state
set position = %(position)s, last_resource = %(last_resource)s, last_document = %(last_document)s;

-- name: keep_replicated_documents
-- The same with a backbone: with the replicated state of documents, and the operations.
with item as (
    select id, uri, version, present, content,
           coalesce(prefixes, (select o.prefixes from documents o where o.id = d.id), '{}') as prefixes,
           inserted, updated, deleted, unchanged, cause, agent, changed_by, digest, statements, replica, origin_life,
           origin_seq
    from jsonb_to_recordset(%(documents)s::jsonb) as d (
        id bigint, uri text, version int, present boolean, content text, prefixes jsonb,
        inserted int, updated int, deleted int, unchanged int, cause text, agent text, changed_by text,
        digest bigint, statements int, replica jsonb, origin_life text, origin_seq bigint)
), document as (
    insert into documents (id, uri, version, present, content, prefixes, position, digest, statements, replica)
    select id, uri, version, present, decode(content, 'hex'), prefixes, %(position)s, digest, statements, replica
    from item
    on conflict (id) do update
    set version = excluded.version, present = excluded.present, content = excluded.content,
        prefixes = excluded.prefixes, position = excluded.position, digest = excluded.digest,
        statements = excluded.statements, replica = excluded.replica
), version as (
    insert into document_versions
        (document_id, version, position, present, prefixes, inserted, updated, deleted, unchanged, cause, agent,
         changed_by, origin_life, origin_seq, digest)
    select id, version, %(position)s, present, prefixes, inserted, updated, deleted, unchanged, cause, agent, changed_by,
           origin_life, origin_seq, digest
    from item
), one as (
    insert into transactions (position, cause) values (%(position)s, 'documents')
), operation as (
    insert into replica_log (life, seq, chain, body, signature)
    select life, seq, decode(chain, 'hex'), decode(body, 'hex'), decode(signature, 'hex')
    from jsonb_to_recordset(%(log)s::jsonb) as o (life text, seq bigint, chain text, body text, signature text)
), draft as (
    insert into replica_drafts (body)
    select decode(body, 'hex') from jsonb_to_recordset(%(drafts)s::jsonb) as o (body text)
)
update mdp_state
set position = %(position)s, last_resource = %(last_resource)s, last_document = %(last_document)s,
    replica = %(replica)s::jsonb, marks = marks + %(more_marks)s::bigint;
