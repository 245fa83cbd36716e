-- Lists of event-condition-action rules on pages.

-- name: find_rules
-- Rules whose name or text contains a text, in the order of their IDs.
select r.id, r.name, r.rule_set, r.state, r.reason, r.normal, coalesce(c.fired, 0), coalesce(c.failed, 0), c.last_fired
from eca_rules r left join eca_counts c on c.rule_id = r.id
where r.id > %(after)s::bigint
  and (%(state)s::text is null or r.state = %(state)s::text)
  and (%(rule_set)s::text is null or r.rule_set = %(rule_set)s::text)
  and (%(holding)s::text is null or strpos(lower(r.name), lower(%(holding)s::text)) > 0
       or strpos(lower(r.text), lower(%(holding)s::text)) > 0)
order by r.id limit %(limit)s::int;
