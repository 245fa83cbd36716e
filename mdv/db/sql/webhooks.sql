-- Messages of webhooks, used by mdv/db/webhooks.py. A transaction that changes a webhook and its messages locks the
-- webhook first.

-- name: pin
-- Use index lookups: the statements read a few rows of tables that may be large.
select set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'off', true),
       set_config('enable_hashjoin', 'off', true), set_config('enable_mergejoin', 'off', true),
       set_config('enable_sort', 'off', true), set_config('jit', 'off', true);

-- name: create_messages
-- Create a message for every active webhook that has new events since its last message, and no waiting message.
with due as (
    select w.id, f."offset", f.tx
    from webhooks w
    cross join lateral (
        select "offset", tx from feed where lmr_id = w.lmr_id order by "offset" desc limit 1) f
    where w.state = 'active' and f."offset" > w.made_offset
      and not exists (select from webhook_deliveries d where d.webhook_id = w.id and d.state = 'waiting' offset 0)
    for no key update of w skip locked),
     made as (
    insert into webhook_deliveries (webhook_id, "offset", position, not_before, created_at)
    select id, "offset", tx, %(now)s, %(now)s from due
    on conflict (webhook_id) where state = 'waiting' do nothing
    returning webhook_id, "offset")
update webhooks w set made_offset = m."offset" from made m where w.id = m.webhook_id;

-- name: claim
-- Claim the message that has waited longest. Other workers do not see it until `lost`.
with one as (
    select d.id
    from webhook_deliveries d join webhooks w on w.id = d.webhook_id
    where d.state = 'waiting' and d.not_before <= %(now)s and w.state = 'active' and w.lmr_id <> all (%(busy)s::bigint[])
    order by d.not_before limit 1
    for no key update of d skip locked)
update webhook_deliveries d
set attempts = d.attempts + 1, tried_at = %(now)s, not_before = %(lost)s
from one, webhooks w, lmrs l
where d.id = one.id and w.id = d.webhook_id and l.id = w.lmr_id
returning d.id, d.webhook_id, l.id, l.name, w.url, w.secret,
          case when w.old_secret_until > %(now)s then w.old_secret end,
          d."offset", d.position, d.attempts, d.created_at, d.tried_at;

-- name: feed_end
-- The last offset of an LMR's feed, and its position.
select coalesce(f."offset", l.kept_after), coalesce(f.tx, s.position)
from lmrs l
cross join mdp_state s
left join lateral (select "offset", tx from feed where lmr_id = l.id order by "offset" desc limit 1) f on true
where l.id = %(lmr)s;

-- name: trim_deliveries
-- Keep only the last `most` finished messages of a webhook.
delete from webhook_deliveries
where webhook_id = %(webhook)s and ended_at is not null and number <= (
    select number from webhook_deliveries where webhook_id = %(webhook)s order by number desc offset %(most)s limit 1);

-- name: delete_old
delete from webhook_deliveries where ended_at < %(before)s;
