-- Figure 4 of the paper: uri_reference, class, property, value. A resource without a type is an rdfs:Resource. The atoms
-- of a resource with several types occur once for each type.
create view filter_data_view as
select r.uri as uri_reference,
       coalesce(c.class, 'http://www.w3.org/2000/01/rdf-schema#Resource') collate "C" as class,
       a.property,
       (case when a.property = 'rdf#subject' then r.uri else coalesce(t.uri, a.value) end) collate "C" as value,
       a.document_id
from (
    select distinct f.document_id, f.resource_id, 'rdf#subject' collate "C" as property,
           null::bigint as target_id, null as value
    from filter_data f
    union all
    select f.document_id, f.resource_id, p.uri, f.target_id, f.value
    from filter_data f
    join vocabulary p on p.id = f.property_id
    where p.uri <> 'http://www.w3.org/1999/02/22-rdf-syntax-ns#type'
) a
join resources r on r.id = a.resource_id
left join resources t on t.id = a.target_id
left join lateral (
    select distinct x.uri as class
    from filter_data f
    join resources x on x.id = f.target_id
    where f.resource_id = a.resource_id
      and f.property_id = (
          select id from vocabulary where uri = 'http://www.w3.org/1999/02/22-rdf-syntax-ns#type')
) c on true;

-- Every visible insertion and deletion of a statement, with its transaction and its cause.
create view statement_log as
select x.position, t.at, case when v.present then 'register' else 'delete' end as cause, d.uri as document,
       x.operation, r.uri as resource, p.uri as property, o.uri as target, x.value, x.lang, y.uri as datatype
from (
    select position, 'insert' as operation, document_id, resource_id, property_id, target_id, value, lang, datatype_id
    from filter_data where shows
    union all
    select position, 'insert', document_id, resource_id, property_id, target_id, value, lang, datatype_id
    from filter_data_history where shows
    union all
    select until_position, 'delete', document_id, resource_id, property_id, target_id, value, lang, datatype_id
    from filter_data_history where hides
) x
join transactions t on t.position = x.position
join documents d on d.id = x.document_id
join document_versions v on v.document_id = x.document_id and v.position = x.position
join resources r on r.id = x.resource_id
join vocabulary p on p.id = x.property_id
left join resources o on o.id = x.target_id
left join vocabulary y on y.id = x.datatype_id;
