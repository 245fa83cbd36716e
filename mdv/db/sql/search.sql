-- The search index: which resources have to be indexed, and their words. No registration runs any of these statements.

-- name: is_current
-- Whether all changes are indexed, and the position of the index.
select s.position = m.position and s.label_properties = %(labels)s::jsonb and not exists (select from search_pending),
       s.position
from search_state s, mdp_state m;

-- name: lock
-- One process updates the index at a time.
select position, label_properties from search_state for update;

-- name: last_position
select position from mdp_state;

-- name: add_changed
-- The resources with statements that were added or removed after a position.
insert into search_pending (resource_id)
select resource_id from filter_data where position > %(after)s
union
select resource_id from filter_data_history where until_position > %(after)s
on conflict do nothing;

-- name: add_all
insert into search_pending (resource_id) select id from resources on conflict do nothing;

-- name: set_state
update search_state set position = %(position)s, label_properties = %(labels)s::jsonb;

-- name: take_pending
-- Take the next resources, in the order of their IDs, which keeps the rows of the index in this order.
delete from search_pending
where resource_id = any (array(select resource_id from search_pending order by resource_id limit %(most)s))
returning resource_id;

-- name: read_texts
-- Literals and classes of these resources.
select k.id, few.property_id, few.target_id, few.text
from unnest(%(ids)s::bigint[]) as k (id)
cross join lateral (
  select f.property_id, f.target_id, left(f.value, %(characters)s) as text
  from filter_data f
  where f.resource_id = k.id and (f.value is not null or f.property_id = %(type)s)
  limit %(each)s
) few;

-- name: find_described
-- Those of these resources that have statements. Some have neither literals nor classes.
select k.id, r.uri
from unnest(%(ids)s::bigint[]) as k (id)
join resources r on r.id = k.id
where exists (select from filter_data f where f.resource_id = k.id);

-- name: write_words
insert into search_texts (resource_id, words)
select (row ->> 0)::bigint, array_to_tsvector(array(select jsonb_array_elements_text(row -> 1)))
from jsonb_array_elements(%(rows)s::jsonb) as row
on conflict (resource_id) do update set words = excluded.words where search_texts.words <> excluded.words;

-- name: delete_words
delete from search_texts where resource_id = any (%(ids)s::bigint[]);

-- name: has_pending
select exists (select from search_pending);
