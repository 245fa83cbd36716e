-- Actions of ReAL: resources with an lrm:body that has real:code.

-- name: list_actions
-- A page of actions in the order of their IDs: resource, label, and the documents with the body. The code is a literal,
-- so the bodies are found by the index on values.
select a.id, a.uri,
       (select min(l.value)
        from filter_data l
        where l.resource_id = a.id and l.property_id = (select id from vocabulary where uri = %(label)s)) as label,
       array(select distinct d.uri
             from filter_data f join documents d on d.id = f.document_id
             where f.resource_id = a.id and f.property_id = (select id from vocabulary where uri = %(body)s)
             order by d.uri limit 20) as documents
from (
    select distinct b.resource_id
    from filter_data c
    join filter_data b on b.target_id = c.resource_id
                      and b.property_id = (select id from vocabulary where uri = %(body)s)
    where c.property_id = (select id from vocabulary where uri = %(code)s)
      and c.value is not null and left(c.value, 64) >= '' and b.resource_id > %(after)s::bigint
) found
join resources a on a.id = found.resource_id
where %(holding)s::text is null or strpos(lower(a.uri), lower(%(holding)s::text)) > 0
order by a.id
limit %(limit)s::bigint;
