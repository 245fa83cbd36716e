-- Runs of `mdv batch`, read by mdv/inspect/sql/batch_runs.py.

-- name: documents
-- The documents that a run registered or changed, with the version that it made, by ID.
select d.id, d.uri, v.version, v.inserted, v.updated, v.deleted
from document_versions v join documents d on d.id = v.document_id
where v.changed_by = %(caller)s and v.changed_by like 'batch %%' and v.document_id > %(after)s
order by v.document_id limit %(limit)s;
