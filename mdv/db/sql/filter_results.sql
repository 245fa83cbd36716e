-- The changes of the last filter run: end rule, resource, and whether it matches now. For rules that match ranges of
-- constants, they are computed from the least and the greatest value before and after, with one statement per operator.

-- name: explicit
select o.rule_id, r.uri, o.matched from result_objects o join resources r on r.id = o.resource_id;

-- name: lt
select e.rule_id, r.uri, coalesce(x.low_after < t.number, false)
from result_ranges x
join resources r on r.id = x.resource_id
join end_rules e on e.group_id = x.group_id and e.rule_id >= x.first_rule
                and (x.last_rule is null or e.rule_id <= x.last_rule)
join filter_rules_lt t on t.rule_id = e.driver_id
where coalesce(x.low_before < t.number, false) <> coalesce(x.low_after < t.number, false);

-- name: le
select e.rule_id, r.uri, coalesce(x.low_after <= t.number, false)
from result_ranges x
join resources r on r.id = x.resource_id
join end_rules e on e.group_id = x.group_id and e.rule_id >= x.first_rule
                and (x.last_rule is null or e.rule_id <= x.last_rule)
join filter_rules_le t on t.rule_id = e.driver_id
where coalesce(x.low_before <= t.number, false) <> coalesce(x.low_after <= t.number, false);

-- name: gt
select e.rule_id, r.uri, coalesce(x.high_after > t.number, false)
from result_ranges x
join resources r on r.id = x.resource_id
join end_rules e on e.group_id = x.group_id and e.rule_id >= x.first_rule
                and (x.last_rule is null or e.rule_id <= x.last_rule)
join filter_rules_gt t on t.rule_id = e.driver_id
where coalesce(x.high_before > t.number, false) <> coalesce(x.high_after > t.number, false);

-- name: ge
select e.rule_id, r.uri, coalesce(x.high_after >= t.number, false)
from result_ranges x
join resources r on r.id = x.resource_id
join end_rules e on e.group_id = x.group_id and e.rule_id >= x.first_rule
                and (x.last_rule is null or e.rule_id <= x.last_rule)
join filter_rules_ge t on t.rule_id = e.driver_id
where coalesce(x.high_before >= t.number, false) <> coalesce(x.high_after >= t.number, false);

-- name: ne
-- One different value is enough: the condition fails only if all values equal the constant.
select e.rule_id, r.uri, coalesce(x.low_after <> t.number or x.high_after <> t.number, x.low_text_after <> t.value or x.high_text_after <> t.value, false)
from result_ranges x
join resources r on r.id = x.resource_id
join end_rules e on e.group_id = x.group_id and e.rule_id >= x.first_rule
                and (x.last_rule is null or e.rule_id <= x.last_rule)
join filter_rules_ne t on t.rule_id = e.driver_id
where coalesce(x.low_before <> t.number or x.high_before <> t.number, x.low_text_before <> t.value or x.high_text_before <> t.value, false)
   <> coalesce(x.low_after <> t.number or x.high_after <> t.number, x.low_text_after <> t.value or x.high_text_after <> t.value, false);
