-- The progress of LMRs, read by mdv/inspect/sql/lmrs.py.

-- name: pin_index_scans
-- Limited counts read an index row by row, instead of scanning a table or building a bitmap.
select set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'off', true),
       set_config('jit', 'off', true);

-- name: progress
-- The progress of LMRs: a few index lookups for each. Nothing is counted beyond a limit.
select l.id,
       (select count(*) from (select from rules where owner = l.id limit %(most)s::bigint + 1) r),
       (select count(*) from (select from lmr_resources where lmr_id = l.id limit %(most)s::bigint + 1) h),
       (select count(*) from (select from lmr_resources where lmr_id = l.id and reasons > 0
                              limit %(most)s::bigint + 1) s),
       (select count(*) from (select from feed where lmr_id = l.id limit %(most)s::bigint + 1) k),
       (select count(*) from (select from feed where lmr_id = l.id and "offset" > coalesce(l.cursor, 0)
                              limit %(most)s::bigint + 1) b),
       t.at, coalesce(l.cursor < l.kept_after, false)
from lmrs l
left join lateral (select tx from feed where lmr_id = l.id and "offset" > coalesce(l.cursor, 0)
                   order by "offset" limit 1) f on true
left join transactions t on t.position = f.tx
where l.id = any (%(lmrs)s::bigint[]);
