-- Queries of the pages for browsing, run by browse.py. They use indexes, and read a limited number of rows.

-- name: count_instances
-- For each group of classes, the instances among its first `most` type statements.
select wanted.place, counted.instances, counted.looked
from (
  select given.place, array_agg(r.id) as ids
  from unnest(%(places)s::int[], %(classes)s::text[]) as given (place, uri)
  join resources r on r.uri = given.uri collate "C"
  group by given.place
) wanted
cross join lateral (
  select count(distinct first.resource_id) as instances, count(*) as looked
  from (
    select f.resource_id
    from filter_data f
    where f.target_id = any (wanted.ids) and f.property_id = %(type)s
    limit %(most)s
  ) first
) counted;

-- name: find_resources
-- URIs with a prefix, and whether a document describes them.
select r.uri, exists (select 1 from filter_data f where f.resource_id = r.id)
from resources r
where r.uri >= %(beginning)s and r.uri < %(beyond)s and r.uri > %(after)s
order by r.uri
limit %(most)s;

-- name: bound_of_slice
-- The greatest resource ID among the next `most` type statements: the end of a slice of the instances.
select max(resource_id)
from (
  select f.resource_id
  from filter_data f
  where f.target_id = any (%(classes)s) and f.property_id = %(type)s and f.resource_id > %(after)s
  order by f.resource_id
  limit %(most)s
) slice;

-- name: used_properties
select distinct v.uri
from filter_data f
join vocabulary v on v.id = f.property_id
where f.resource_id = any (%(resources)s);

-- name: cells
-- A few values of each of these properties, for each of these resources.
select r.id, v.uri, few.hash, t.uri, few.text
from unnest(%(resources)s::bigint[]) as r (id)
cross join (select id, uri from vocabulary where uri = any (%(properties)s)) v
cross join lateral (
  select f.hash, f.target_id, left(f.value, %(characters)s) as text
  from filter_data f
  where f.resource_id = r.id and f.property_id = v.id
  limit %(each)s
) few
left join resources t on t.id = few.target_id;

-- name: labels
-- The values of label properties of these resources. Values are never labels if they are URIs.
select r.uri, v.uri, few.text, few.lang
from resources r
cross join (select id, uri from vocabulary where uri = any (%(properties)s)) v
cross join lateral (
  select left(f.value, %(characters)s) as text, f.lang
  from filter_data f
  where f.resource_id = r.id and f.property_id = v.id and f.value is not null
  limit %(each)s
) few
where r.uri = any (%(uris)s);

-- name: literals
-- A page of the literals of a resource, ordered by property. Long ones are shortened, with their full size.
select name.uri, f.hash, left(f.value, %(characters)s), octet_length(f.value),
  octet_length(f.value) = octet_length(left(f.value, %(characters)s)), f.lang, kind.uri
from (
  select distinct on (property_id, hash) property_id, hash, value, lang, datatype_id
  from filter_data
  where resource_id = %(resource)s and target_id is null
  order by property_id, hash
) f
join vocabulary name on name.id = f.property_id
left join vocabulary kind on kind.id = f.datatype_id
where (name.uri, f.hash) > (%(after_property)s, %(after)s)
order by name.uri, f.hash
limit %(most)s;

-- name: whole_value
select f.value
from filter_data f
join vocabulary name on name.id = f.property_id
where f.resource_id = %(resource)s and name.uri = %(property)s and f.hash = %(hash)s and f.value is not null
limit 1;

-- name: references
-- A page of the references of a resource, except its classes, and whether a document describes the targets.
select page.name, page.target_id, t.uri, exists (select 1 from filter_data d where d.resource_id = page.target_id)
from (
  select name.uri as name, f.target_id
  from (
    select distinct property_id, target_id
    from filter_data
    where resource_id = %(resource)s and target_id is not null and property_id <> %(type)s
  ) f
  join vocabulary name on name.id = f.property_id
  where (name.uri, f.target_id) > (%(after_property)s, %(after)s)
  order by name.uri, f.target_id
  limit %(most)s
) page
join resources t on t.id = page.target_id
order by page.name, page.target_id;

-- name: referrers
-- A page of the references to a resource, in the order of the index.
select page.property_id, name.uri, page.resource_id, r.uri
from (
  select distinct property_id, resource_id
  from filter_data
  where target_id = %(resource)s and (property_id, resource_id) > (%(after_property)s, %(after)s)
  order by property_id, resource_id
  limit %(most)s
) page
join vocabulary name on name.id = page.property_id
join resources r on r.id = page.resource_id
order by page.property_id, page.resource_id;

-- name: count_referrers
select count(distinct (property_id, resource_id)), count(*)
from (select property_id, resource_id from filter_data where target_id = %(resource)s limit %(most)s) first;

-- name: count_references
select count(distinct (property_id, target_id)), count(*)
from (
  select property_id, target_id
  from filter_data
  where resource_id = %(resource)s and target_id is not null and property_id <> %(type)s
  limit %(most)s
) first;

-- name: holders
-- A page of the LMRs that hold a resource, and whether their rules select it.
select l.id, l.name, h.reasons > 0
from lmr_resources h
join lmrs l on l.id = h.lmr_id
where h.resource_id = %(resource)s and h.lmr_id > %(after)s
order by h.lmr_id
limit %(most)s;

-- name: is_described
select exists (select 1 from filter_data where resource_id = %(resource)s);

-- name: describing
-- A page of the documents that describe a resource.
select d.id, d.uri
from (
  select distinct document_id
  from filter_data
  where resource_id = %(resource)s and document_id > %(after)s
  order by document_id
  limit %(most)s
) page
join documents d on d.id = page.document_id
order by d.id;

-- name: changed_at
-- When the statements about a resource last changed.
select at
from transactions
where position = (
  select greatest(
    (select max(position) from filter_data where resource_id = %(resource)s and shows),
    (select until_position from filter_data_history where resource_id = %(resource)s and hides
     order by until_position desc limit 1)
  )
);
