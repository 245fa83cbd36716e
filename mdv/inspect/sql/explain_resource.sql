-- Why an LMR holds a resource. Run by explain_resource.py.

-- name: resource
select id from resources where uri = %(uri)s;

-- name: uris
select id, uri from resources where id = any (%(ids)s);

-- name: documents
-- The documents that describe a resource.
select uri from documents
where id in (select document_id from filter_data where resource_id = %(resource)s)
order by uri
limit %(most)s;

-- name: reasons
-- No row: it is not in the closure of the LMR.
select reasons from lmr_resources where lmr_id = %(lmr)s and resource_id = %(resource)s;

-- name: groups
-- The whole groups that contain rules of an owner.
select distinct e.group_id
from rules r
join rule_ends x on x.rule_id = r.id
join end_rules e on e.rule_id = x.end_id
where r.owner = %(owner)s;

-- name: rules_of_groups
-- A few rules of an owner from each of these groups.
select distinct few.id
from unnest(%(groups)s::int[]) as g (group_id)
cross join lateral (
  select r.id
  from end_rules e
  join rule_ends x on x.end_id = e.rule_id
  join rules r on r.id = x.rule_id and r.owner = %(owner)s
  where e.group_id = g.group_id
  order by e.rule_id, r.id
  limit %(each)s
) few
order by few.id
limit %(most)s;

-- name: values
-- The values of some properties of some resources.
select distinct f.resource_id, f.property_id, t.uri, f.value, f.number, f.instant, f.truth
from filter_data f
left join resources t on t.id = f.target_id
where f.resource_id = any (%(resources)s) and f.property_id = any (%(properties)s)
order by f.resource_id, f.property_id, t.uri, f.value
limit %(most)s;

-- name: selected_referrer
-- A resource that a rule of the LMR selects and that strongly references one of these.
select f.resource_id, f.property_id, f.target_id
from filter_data f
join lmr_resources l on l.lmr_id = %(lmr)s and l.resource_id = f.resource_id and l.reasons > 0
where f.target_id = any (%(targets)s)
  and (f.property_id = any (%(strong)s) or f.target_id = any (%(blank)s))
order by f.resource_id, f.property_id, f.target_id
limit 1;

-- name: referrers
-- Resources of the LMR's closure that strongly reference one of these, each with one such reference.
select distinct on (f.resource_id) f.resource_id, f.property_id, f.target_id
from filter_data f
join lmr_resources l on l.lmr_id = %(lmr)s and l.resource_id = f.resource_id
where f.target_id = any (%(targets)s)
  and (f.property_id = any (%(strong)s) or f.target_id = any (%(blank)s))
  and f.resource_id <> all (%(seen)s)
order by f.resource_id, f.property_id, f.target_id
limit %(most)s;
