-- Actions of ReAL as documents describe them.

-- name: read_bodies
-- The code of actions, each with the prefixes of the document that says it.
select a.uri, c.value, v.prefixes
from resources a
join filter_data b on b.resource_id = a.id and b.property_id = (select id from vocabulary where uri = %(body)s)
join filter_data c on c.resource_id = b.target_id
    and c.property_id = (select id from vocabulary where uri = %(code)s) and c.value is not null
join documents d on d.id = c.document_id
cross join lateral (
    select prefixes from document_versions v where v.document_id = d.id order by v.version desc limit 1
) v
where a.uri = any (%(actions)s)
order by a.uri, d.uri;
