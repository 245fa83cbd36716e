-- The search of an MDP.

-- name: next_rows
-- The results among the next rows. A common word fills a page from them.
select resource_id
from (select resource_id, words from search_texts where resource_id > %(after)s order by resource_id limit %(rows)s) s
where words @@ %(query)s::tsquery
order by resource_id limit %(most)s;

-- name: find
-- The results among all rows, with the index of words.
with found as materialized (
  select resource_id from search_texts where words @@ %(query)s::tsquery and resource_id > %(after)s
)
select resource_id from found order by resource_id limit %(most)s;

-- name: sample
-- Any results, with the index of words. Only as many rows are read as there are results.
select resource_id from search_texts where words @@ %(query)s::tsquery limit %(most)s;

-- name: find_uris
select id, uri from resources
where uri >= %(beginning)s and uri < %(beyond)s and uri > %(after)s
order by uri limit %(most)s;

-- name: literals
select k.id, v.uri, few.text, few.lang
from unnest(%(ids)s::bigint[]) as k (id)
cross join lateral (
  select f.property_id, left(f.value, %(characters)s) as text, f.lang
  from filter_data f
  where f.resource_id = k.id and f.value is not null
  limit %(each)s
) few
join vocabulary v on v.id = few.property_id
order by k.id, v.uri, few.text, few.lang;
