-- Time limits for the counts of explain_rule.py.

-- name: read_limit
-- The current time limit of statements.
select current_setting('statement_timeout');

-- name: limit_time
-- Set the time limit of the statements of this transaction, and disable JIT compilation.
select set_config('statement_timeout', %(most)s, true), set_config('jit', 'off', true);
