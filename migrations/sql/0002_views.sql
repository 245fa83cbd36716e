-- The index keys (grams) of a text for `contains`: all substrings of 6 and of 4 characters, and the empty string. Long
-- texts are split into characters once, since substr() on UTF-8 text scans from the start.
create function mdv_grams(value text) returns text[] language sql immutable strict parallel safe as $$
select case when length(value) <= 400 then
    array(select substr(value, n, 6) from generate_series(1, length(value) - 5) n
          union select substr(value, n, 4) from generate_series(1, length(value) - 3) n
          union select '')
else
    array(select g from (
              select a || b || c || d || e || f as g from (
                  select l as a, lead(l, 1) over w as b, lead(l, 2) over w as c, lead(l, 3) over w as d,
                         lead(l, 4) over w as e, lead(l, 5) over w as f
                  from unnest(string_to_array(value, null)) with ordinality as u (l, n) window w as (order by n)) six
              union
              select a || b || c || d from (
                  select l as a, lead(l, 1) over w as b, lead(l, 2) over w as c, lead(l, 3) over w as d
                  from unnest(string_to_array(value, null)) with ordinality as u (l, n) window w as (order by n)) four
              union select '') grams
          where g is not null)
end
$$;

-- Figure 8 of the paper, for every operator.
create view filter_rules_view as
select r.operator, r.rule_id, p.class, p.property, r.value
from (
    select '=' as operator, rule_id, predicate_id, coalesce(value, number::text) as value from filter_rules_eq
    union all select '!=', rule_id, predicate_id, coalesce(value, number::text) from filter_rules_ne
    union all select '<', rule_id, predicate_id, number::text from filter_rules_lt
    union all select '<=', rule_id, predicate_id, number::text from filter_rules_le
    union all select '>', rule_id, predicate_id, number::text from filter_rules_gt
    union all select '>=', rule_id, predicate_id, number::text from filter_rules_ge
    union all select 'contains', rule_id, predicate_id, value from filter_rules_con
    union all select 'not contains', rule_id, predicate_id, value from filter_rules_ncon
) r
join rule_predicates p using (predicate_id);
