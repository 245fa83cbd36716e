-- The statements of one registration run, besides the plain COPYs. mdv/db/store.py names them in their order. Each works
-- on a whole batch, handed over as arrays, so that their number depends neither on the documents nor on their statements.
-- (Long lists of text come as JSON, which is written several times faster than an array.)

-- name: lock_state
select epoch, position, schema_version, last_resource, last_document, last_rule, last_atomic_rule, graph_version,
       last_offset, lmrs
from mdp_state for update;

-- name: lock_rules
-- The same; and what is asked of the graph of rules is planned once, by index, however small it was then.
select epoch, position, schema_version, last_resource, last_document, last_rule, last_atomic_rule, graph_version,
       last_offset, lmrs,
       set_config('enable_seqscan', 'off', true), set_config('plan_cache_mode', 'force_generic_plan', true)
from mdp_state for update;

-- name: open_run
-- The same; and the big tables are reached through their indexes from now on, whatever the planner saw of them when they
-- were small.
select epoch, position, schema_version, last_resource, last_document, last_rule, last_atomic_rule, graph_version,
       last_offset, lmrs,
       set_config('enable_seqscan', 'off', true), set_config('jit', 'off', true)
from mdp_state for update;

-- name: find_documents
select id, uri, version, present, content
from documents where uri = any (array(select jsonb_array_elements_text(%(uris)s::jsonb)));

-- name: find_resources
-- The numbers of those of these URIs that are known.
select uri, id from resources where uri = any (array(select jsonb_array_elements_text(%(uris)s::jsonb)));

-- name: find_statements
-- What these documents say until now.
select ctid::text, document_id, resource_id, property_id, target_id, value, lang, datatype_id, hash, position, shows,
       blank, number, instant, truth
from filter_data where document_id = any (%(documents)s::bigint[]);

-- name: remove_statements
delete from filter_data where ctid = any (%(rows)s::tid[]);

-- name: find_others
-- Which of these statements some other document makes: asked after the removals and before the insertions.
select k.n
from unnest(%(resources)s::bigint[], %(properties)s::int[], %(targets)s::bigint[], %(values)s::text[],
            %(langs)s::text[], %(datatypes)s::int[], %(hashes)s::bigint[])
     with ordinality as k (resource_id, property_id, target_id, value, lang, datatype_id, hash, n)
cross join lateral (
    select from filter_data f
    where f.resource_id = k.resource_id and f.property_id = k.property_id and f.hash = k.hash
      and f.target_id is not distinct from k.target_id and f.value is not distinct from k.value
      and f.lang is not distinct from k.lang and f.datatype_id is not distinct from k.datatype_id
    limit 1
) other;

-- name: find_described
-- Which of these resources something is still said of: asked after the removals and before the insertions.
select k.resource_id
from unnest(%(resources)s::bigint[]) as k (resource_id)
cross join lateral (select from filter_data f where f.resource_id = k.resource_id limit 1) other;

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

-- name: keep_documents
-- The documents as they are from now on, and what became of each; and the step that the MDP takes with them.
with item as (
    select * from jsonb_to_recordset(%(documents)s::jsonb) as d (
        id bigint, uri text, version int, present boolean, content text, prefixes jsonb,
        inserted int, updated int, deleted int, unchanged int)
), document as (
    insert into documents (id, uri, version, present, content, prefixes, position)
    select id, uri, version, present, decode(content, 'hex'), prefixes, %(position)s from item
    on conflict (id) do update
    set version = excluded.version, present = excluded.present, content = excluded.content,
        prefixes = excluded.prefixes, position = excluded.position
), version as (
    insert into document_versions
        (document_id, version, position, present, prefixes, inserted, updated, deleted, unchanged)
    select id, version, %(position)s, present, prefixes, inserted, updated, deleted, unchanged from item
), one as (
    insert into transactions (position, cause) values (%(position)s, 'documents')
)
update mdp_state
set position = %(position)s, last_resource = %(last_resource)s, last_document = %(last_document)s;
