-- The SQL of the rule base that is analysed.

-- name: read_version
select eca_version from mdp_state;

-- name: list_templates
-- Templates of active and shadow rules, with the text of one rule of each and the number of rules.
select t.id, t.text, n.rules
from (select template_id, count(*) as rules from eca_rules where state in ('active', 'shadow') group by template_id) n
join eca_templates t on t.id = n.template_id
order by n.rules, t.id;

-- name: find_template
select id from eca_templates where digest = %(digest)s;

-- name: count_rules
-- The number of active and shadow rules of a template.
select count(*) from eca_rules where template_id = %(template)s and state in ('active', 'shadow');

-- name: list_all_rules
-- The active and shadow rules of these templates.
select template_id, id, name, constants, precedes, follows from eca_rules
where template_id = any (%(templates)s) and state in ('active', 'shadow')
order by id;

-- name: list_first_rules
-- The first active and shadow rules of each of these templates.
select r.template_id, r.id, r.name, r.constants, r.precedes, r.follows
from unnest(%(templates)s::int[]) as t (id)
cross join lateral (
    select * from eca_rules where template_id = t.id and state in ('active', 'shadow') order by id limit %(most)s
) r
order by r.id;
