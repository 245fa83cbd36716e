-- Statements as of a position P, for programs: rows that were added up to P, and rows of the history that were removed
-- after P. The order is that of the index filter_data_resource, so that a cursor can go on after any statement.
-- `position + 0` keeps the planner from the index on positions. mdv/db/real/statement_reader.py adds the conditions and
-- the limit where there are braces. {documents}: the table, or also the documents that this transaction registers.

-- name: read_items
select k.n, s.uri, p.uri, t.uri, f.value, f.lang, d.uri
from jsonb_to_recordset(%(items)s::jsonb) as k (
    n int, subject text, property text, target text, value text, lang text, datatype text, hash bigint, number numeric,
    truth boolean, after_subject text, after_property text, after_hash bigint, after_target text, after_value text,
    after_lang text, after_datatype text)
{names}
cross join lateral (
    select distinct on ({key}) {columns}
    from (
        (select distinct on ({key}) {columns}
         from {current}
         order by {key} limit {limit})
        union all
        (select distinct on ({key}) {columns}
         from {history}
         order by {key} limit {limit})
    ) f
    order by {key} limit {limit}
) f
cross join lateral (select uri from resources r where r.id = f.resource_id offset 0) s
cross join lateral (select uri from vocabulary v where v.id = f.property_id offset 0) p
left join lateral (select uri from resources r where r.id = f.target_id offset 0) t on true
left join lateral (select uri from vocabulary v where v.id = f.datatype_id offset 0) d on true
order by k.n, {key};

-- name: read_own_rows
-- The first rows of each pattern with a bound subject. Rows of several documents with the same statement are neighbours.
select k.n, k.subject, p.uri, t.uri, f.value, f.lang, d.uri
from jsonb_to_recordset(%(items)s::jsonb) as k (
    n int, subject text, property text, target text, value text, lang text, datatype text, hash bigint, number numeric,
    truth boolean)
{names}
cross join lateral (
    (select {columns} from {current} order by f.resource_id, f.property_id, f.hash limit {limit})
    union all
    (select {columns} from {history} limit {limit})
) f
cross join lateral (select uri from vocabulary v where v.id = f.property_id offset 0) p
left join lateral (select uri from resources r where r.id = f.target_id offset 0) t on true
left join lateral (select uri from vocabulary v where v.id = f.datatype_id offset 0) d on true
order by k.n, {key};

-- name: find_documents_with
-- The documents that contain these statements.
select k.n, d.uri
from jsonb_to_recordset(%(items)s::jsonb) as k (
    n int, subject text, property text, target text, value text, lang text, datatype text, hash bigint)
cross join lateral (select id from resources r where r.uri = k.subject offset 0) s
cross join lateral (select id from vocabulary v where v.uri = k.property offset 0) p
cross join lateral (
    select f.document_id, f.target_id, f.value, f.lang, f.datatype_id
    from filter_data f
    where f.resource_id = s.id and f.property_id = p.id and f.hash = k.hash
      and f.position + 0 <= %(position)s::bigint
    union all
    select f.document_id, f.target_id, f.value, f.lang, f.datatype_id
    from filter_data_history f
    where f.resource_id = s.id and f.property_id = p.id and f.hash = k.hash
      and f.until_position > %(position)s::bigint and f.position + 0 <= %(position)s::bigint
) f
cross join lateral (select uri from {documents} d where d.id = f.document_id offset 0) d
left join lateral (select uri from resources r where r.id = f.target_id offset 0) t on true
left join lateral (select uri from vocabulary v where v.id = f.datatype_id offset 0) y on true
where t.uri is not distinct from k.target and f.value is not distinct from k.value
  and f.lang is not distinct from k.lang and y.uri is not distinct from k.datatype;

-- name: read_prefixes
-- The prefixes of a document.
select v.prefixes
from documents d
join document_versions v on v.document_id = d.id
where d.uri = %(document)s and v.position + 0 <= %(position)s::bigint
order by v.version desc limit 1;

-- name: read_position
select position, schema_version from mdp_state;

-- name: begin_reading_changes
-- As below, in a transaction that changes statements. `end_reading_changes` restores the settings.
select set_config('mdv.statement_timeout', current_setting('statement_timeout'), true),
       set_config('statement_timeout', %(timeout)s, true),
       set_config('enable_seqscan', 'off', true), set_config('plan_cache_mode', 'force_generic_plan', true),
       set_config('mdv.jit', current_setting('jit'), true), set_config('jit', 'off', true);

-- name: end_reading_changes
select set_config('statement_timeout', current_setting('mdv.statement_timeout'), true),
       set_config('enable_seqscan', 'on', true), set_config('plan_cache_mode', 'auto', true),
       set_config('jit', current_setting('mdv.jit'), true);

-- name: caller_of_process
select caller from real_processes where iri = %(iri)s::text and ended_at is null;

-- name: begin_reading
-- Plans are pinned: they do not depend on the values or on how large a table is at the moment.
select set_config('transaction_read_only', 'on', true), set_config('statement_timeout', %(timeout)s, true),
       set_config('enable_seqscan', 'off', true), set_config('plan_cache_mode', 'force_generic_plan', true),
       set_config('jit', 'off', true), set_config('max_parallel_workers_per_gather', '0', true);
