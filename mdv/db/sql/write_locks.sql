-- Locks of statements against programs. mdv/db/sql/real_processes.sql reads them for slices.

-- name: add
insert into write_locks (document_prefix, subject, property, object, changed_by)
values (%(document_prefix)s, %(subject)s, %(property)s, %(object)s::json, %(by)s)
returning id, document_prefix, subject, property, object, changed_by, created_at;

-- name: count
select count(*) from write_locks;

-- name: list
select id, document_prefix, subject, property, object, changed_by, created_at from write_locks
where id > %(after)s order by id limit %(limit)s;

-- name: remove
delete from write_locks where id = %(id)s
returning id, document_prefix, subject, property, object, changed_by, created_at;
