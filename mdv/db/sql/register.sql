-- The statements of one registration run, in the order in which mdv/db/store.py names them. They work on whole batches:
-- their number does not depend on how many documents or statements a batch has. Tables named incoming_*, stored_*, added_*
-- and removed_* are temporary and live for one transaction.
--
-- Big tables are reached by index probes only (lateral … offset 0, = any (array …)), and the run sets enable_nestloop and
-- enable_seqscan off, so that a plan made while the tables were small is still the right one when they are large.

-- name: incoming_documents
create temporary table if not exists incoming_documents (
    uri text collate "C" not null, document_id bigint, version int, present boolean not null,
    content bytea not null, prefixes jsonb not null
) on commit delete rows;

-- name: incoming_statements
create temporary table if not exists incoming_statements (
    document text collate "C" not null, subject text collate "C" not null, property_id int not null,
    target text collate "C", value text collate "C", lang text collate "C", datatype_id int, hash bigint not null,
    number numeric, instant numeric, truth boolean
) on commit delete rows;

-- name: incoming_uris
create temporary table if not exists incoming_uris (
    uri text collate "C" not null, id bigint not null, fresh boolean not null
) on commit delete rows;

-- name: new_statements
create temporary table if not exists new_statements (
    document_id bigint not null, resource_id bigint not null, fresh boolean not null, property_id int not null,
    target_id bigint, value text collate "C", lang text collate "C", datatype_id int, hash bigint not null,
    number numeric, instant numeric, truth boolean
) on commit delete rows;

-- name: stored_statements
create temporary table if not exists stored_statements (
    tid tid not null, document_id bigint not null, resource_id bigint not null, property_id int not null,
    target_id bigint, value text collate "C", lang text collate "C", datatype_id int, hash bigint not null,
    position bigint not null, shows boolean not null
) on commit delete rows;

-- name: changed_statements
create temporary table if not exists changed_statements (
    inserts boolean not null, tid tid, document_id bigint not null, resource_id bigint not null, fresh boolean not null,
    property_id int not null, target_id bigint, value text collate "C", lang text collate "C", datatype_id int,
    hash bigint not null, number numeric, instant numeric, truth boolean, position bigint, shows boolean,
    visible boolean
) on commit delete rows;

-- name: visible_changes
create temporary table if not exists visible_changes (
    inserts boolean not null, document_id bigint not null, resource_id bigint not null, fresh boolean not null,
    property_id int not null, target_id bigint, value text collate "C", lang text collate "C", datatype_id int,
    hash bigint not null
) on commit delete rows;

-- name: changed_resources
create temporary table if not exists changed_resources (
    resource_id bigint not null, was boolean not null, is_now boolean not null
) on commit delete rows;

-- name: pin_plans
select set_config('enable_nestloop', 'off', true), set_config('enable_seqscan', 'off', true), set_config('jit', 'off', true);

-- name: name_documents
-- Documents that come for the first time get their row.
with named as (
    insert into documents (uri, version, present, content, prefixes, position)
    select uri, 0, false, ''::bytea, '{}'::jsonb, 0 from incoming_documents where document_id is null
    returning id, uri
)
update incoming_documents i set document_id = named.id, version = 0 from named where named.uri = i.uri;

-- name: find_uris
-- One probe a distinct URI; what is not known yet gets the next number, neighbours in the document next to each other.
insert into incoming_uris (uri, id, fresh)
select u.uri, coalesce(r.id, nextval('resources_id_seq')), r.id is null
from (
    select uri from (
        select subject as uri from incoming_statements
        union
        select target from incoming_statements where target is not null
    ) every order by uri
) u
left join lateral (select r.id from resources r where r.uri = u.uri offset 0) r on true;

-- name: keep_uris
insert into resources (id, uri) select id, uri from incoming_uris where fresh order by id;

-- name: encode_statements
insert into new_statements
select d.document_id, s.id, s.fresh, i.property_id, t.id, i.value, i.lang, i.datatype_id, i.hash,
       i.number, i.instant, i.truth
from incoming_statements i
join incoming_documents d on d.uri = i.document
join incoming_uris s on s.uri = i.subject
left join incoming_uris t on t.uri = i.target;

-- name: find_stored
-- What the documents of the batch say until now.
insert into stored_statements
select f.tid, f.document_id, f.resource_id, f.property_id, f.target_id, f.value, f.lang, f.datatype_id, f.hash,
       f.position, f.shows
from incoming_documents d
cross join lateral (
    select x.ctid as tid, x.* from filter_data x where x.document_id = d.document_id offset 0
) f
where d.version > 0;

-- name: find_added
-- The difference, one way: statements that a document makes now and did not make before.
insert into changed_statements
select true, null, n.document_id, n.resource_id, n.fresh, n.property_id, n.target_id, n.value, n.lang, n.datatype_id,
       n.hash, n.number, n.instant, n.truth, null, null, null
from new_statements n
left join stored_statements s
       on s.document_id = n.document_id and s.resource_id = n.resource_id and s.hash = n.hash
      and s.property_id = n.property_id
      and s.target_id is not distinct from n.target_id and s.value is not distinct from n.value
      and s.lang is not distinct from n.lang and s.datatype_id is not distinct from n.datatype_id
where s.document_id is null;

-- name: find_removed
-- The difference, the other way: statements that a document made before and does not make now.
insert into changed_statements
select false, s.tid, s.document_id, s.resource_id, false, s.property_id, s.target_id, s.value, s.lang, s.datatype_id,
       s.hash, null, null, null, s.position, s.shows, null
from stored_statements s
left join new_statements n
       on s.document_id = n.document_id and s.resource_id = n.resource_id and s.hash = n.hash
      and s.property_id = n.property_id
      and s.target_id is not distinct from n.target_id and s.value is not distinct from n.value
      and s.lang is not distinct from n.lang and s.datatype_id is not distinct from n.datatype_id
where n.document_id is null;

-- name: remove_statements
delete from filter_data f where f.ctid = any (array(select c.tid from changed_statements c where not c.inserts));

-- name: find_visible
-- A change of a statement is visible when no other document makes the same statement, before and after. Of several
-- documents that bring (or drop) one statement in this batch, one carries the change. Looks at what is left after the
-- removals and before the insertions.
insert into visible_changes
select distinct on (c.resource_id, c.property_id, c.hash, c.target_id, c.value, c.lang, c.datatype_id)
       c.inserts, c.document_id, c.resource_id, c.fresh, c.property_id, c.target_id, c.value, c.lang, c.datatype_id,
       c.hash
from (
    select c.*, bool_or(c.inserts) over same and bool_or(not c.inserts) over same as moved
    from changed_statements c
    window same as (partition by c.resource_id, c.property_id, c.hash, c.target_id, c.value, c.lang, c.datatype_id)
) c
left join lateral (
    select true as here from filter_data f
    where f.resource_id = c.resource_id and f.property_id = c.property_id and f.hash = c.hash
      and f.target_id is not distinct from c.target_id and f.value is not distinct from c.value
      and f.lang is not distinct from c.lang and f.datatype_id is not distinct from c.datatype_id
      and not c.fresh
    limit 1
) other on true
where not c.moved and other.here is null
order by c.resource_id, c.property_id, c.hash, c.target_id, c.value, c.lang, c.datatype_id, c.document_id;

-- name: find_changed_resources
-- Whether each changed resource was there before, and is there now: statements that only moved count on both sides.
insert into changed_resources
select c.resource_id, c.removed or coalesce(kept.here, false), c.added or coalesce(kept.here, false)
from (
    select resource_id, bool_or(inserts) as added, bool_or(not inserts) as removed, bool_and(fresh) as fresh
    from changed_statements group by resource_id
) c
left join lateral (
    select true as here from filter_data f where f.resource_id = c.resource_id and not c.fresh limit 1
) kept on true;

-- name: keep_history
insert into filter_data_history
    (document_id, resource_id, property_id, target_id, value, lang, datatype_id, hash, position, shows,
     until_position, hides)
select c.document_id, c.resource_id, c.property_id, c.target_id, c.value, c.lang, c.datatype_id, c.hash, c.position,
       c.shows, %(position)s, v.document_id is not null
from changed_statements c
left join visible_changes v
       on v.document_id = c.document_id and v.resource_id = c.resource_id and v.hash = c.hash
      and v.property_id = c.property_id
      and v.target_id is not distinct from c.target_id and v.value is not distinct from c.value
      and v.lang is not distinct from c.lang and v.datatype_id is not distinct from c.datatype_id
where not c.inserts;

-- name: insert_statements
insert into filter_data
    (document_id, resource_id, property_id, target_id, value, lang, datatype_id, hash, position, shows,
     number, instant, truth)
select c.document_id, c.resource_id, c.property_id, c.target_id, c.value, c.lang, c.datatype_id, c.hash, %(position)s,
       v.document_id is not null, c.number, c.instant, c.truth
from changed_statements c
left join visible_changes v
       on v.document_id = c.document_id and v.resource_id = c.resource_id and v.hash = c.hash
      and v.property_id = c.property_id
      and v.target_id is not distinct from c.target_id and v.value is not distinct from c.value
      and v.lang is not distinct from c.lang and v.datatype_id is not distinct from c.datatype_id
where c.inserts;

-- name: keep_versions
-- What the run did, a row a document: resources inserted, updated, deleted, and described without a visible change.
with touched as (
    select document_id, resource_id, bool_or(visible) as visible, bool_or(described) as described
    from (
        select document_id, resource_id, true as visible, false as described from visible_changes
        union all
        select document_id, resource_id, false, true from new_statements
    ) every group by document_id, resource_id
)
insert into document_versions
    (document_id, version, position, present, prefixes, inserted, updated, deleted, unchanged)
select d.document_id, d.version + 1, %(position)s, d.present, d.prefixes,
       count(*) filter (where t.visible and not r.was),
       count(*) filter (where t.visible and r.was and r.is_now),
       count(*) filter (where t.visible and not r.is_now),
       count(*) filter (where t.described and not t.visible)
from incoming_documents d
left join touched t on t.document_id = d.document_id
left join changed_resources r on r.resource_id = t.resource_id
group by d.document_id, d.version, d.present, d.prefixes
returning document_id, version, inserted, updated, deleted, unchanged;

-- name: keep_documents
update documents d
set version = i.version + 1, present = i.present, content = i.content, prefixes = i.prefixes, position = %(position)s
from incoming_documents i
where d.id = i.document_id and d.id = any (array(select document_id from incoming_documents));

-- name: keep_transaction
insert into transactions (position, cause) values (%(position)s, %(cause)s);

-- name: advance
update mdp_state set position = %(position)s;
