-- The status of an MDP, read by mdv/inspect/sql/status.py. The cost does not depend on the size of the store.

-- name: pin
-- Limited counts read an index row by row instead of building a bitmap.
select set_config('enable_bitmapscan', 'off', true), set_config('jit', 'off', true);

-- name: lagging_lmrs
-- The LMRs with the oldest unread events: one index lookup for each LMR, and a limited count for the listed ones.
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

-- name: lmrs_behind
-- A page of the LMRs whose first unread event is older than some seconds, or whose cursor has expired.
select l.id
from lmrs l
left join lateral (select tx from feed where lmr_id = l.id and "offset" > coalesce(l.cursor, 0)
                   order by "offset" limit 1) e on true
left join lateral (select at from transactions where position = e.tx) t on true
where l.id > %(after)s
  and (t.at < now() - %(seconds)s * interval '1 second' or l.cursor < l.kept_after)
order by l.id limit %(limit)s;
