-- How an MDP is. mdv/db/status.py names the statements. None of them costs more on a large store.

-- name: pin
-- What is bounded is read row by row, and not gathered whole before.
select set_config('enable_bitmapscan', 'off', true), set_config('jit', 'off', true);

-- name: furthest_behind
-- The LMRs whose first event that they have not asked for is the oldest: one look into the index for each LMR, and for
-- the few that are told of a count up to a bound.
select f.id, f.name, (select count(*) from (select from feed where lmr_id = f.id and "offset" > f.read
                                            order by "offset" limit %(most)s + 1) unread),
       p.at, f.asked_at, f.kept_after > f.read, f.paused
from (select l.id, l.name, l.read, l.asked_at, l.kept_after, l.paused, e."offset", e.tx
      from (select *, coalesce(cursor, 0) as read from lmrs) l
      cross join lateral (select "offset", tx from feed where lmr_id = l.id and "offset" > l.read
                          order by "offset" limit 1) e
      order by e."offset" limit %(furthest)s) f
left join publications p on p.tx = f.tx
order by f."offset";
