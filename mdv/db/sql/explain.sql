-- What explain needs around its counts. mdv/db/explain.py names the statements.

-- name: read_limit
-- How long a statement may take.
select current_setting('statement_timeout');

-- name: limit_time
-- No statement of this transaction takes longer than this; none is worth being compiled.
select set_config('statement_timeout', %(most)s, true), set_config('jit', 'off', true);
