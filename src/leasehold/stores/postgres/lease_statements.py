"""The SQL of leases in Postgres: each statement is one request, however many keys it names.

What a statement reads is one snapshot; what it writes is compared again with what is there when the row's lock
is got. A fence is counted after the snapshot was taken, so it is above every fence that was read; and a row
that is written has the fence that was read, so none in between was given, and its session is the one that was read
or has given it up.
"""

from __future__ import annotations

from leasehold.stores.postgres.database import synchronous_commit

_EXPIRED = "until <= clock_timestamp()"


def _more(duration: str) -> str:
    """Until when a session lives from now on: one of a duration that nobody can have asked for, no longer."""
    return (
        f"CASE WHEN {duration} IS NULL THEN 'infinity' WHEN {duration} > 0 AND {duration} < 4e9 "
        f"THEN clock_timestamp() + make_interval(secs => {duration}) ELSE clock_timestamp() END"
    )


_MORE = _more("duration")


# Of the sessions that are `involved`, find out which are `alive`, and remove the others. Those whose time is over
# in the snapshot are looked at again under their locks, in the order of their ids: a heartbeat may have come.
_JUDGED = f"""
  overdue AS MATERIALIZED (
    SELECT id FROM leasehold_session WHERE id IN (SELECT session FROM involved) AND {_EXPIRED}),
  locked AS MATERIALIZED (
    SELECT stored.id, stored.until FROM leasehold_session AS stored JOIN overdue ON stored.id = overdue.id
    ORDER BY stored.id FOR UPDATE OF stored),
  revived AS MATERIALIZED (SELECT id FROM locked WHERE NOT {_EXPIRED}),
  buried AS (
    DELETE FROM leasehold_session AS stored USING locked
    WHERE stored.id = locked.id AND locked.id NOT IN (SELECT id FROM revived) RETURNING stored.id),
  alive AS MATERIALIZED (
    SELECT id, owner, duration FROM leasehold_session WHERE id IN (SELECT session FROM involved)
      AND (id NOT IN (SELECT id FROM overdue) OR id IN (SELECT id FROM revived))
      AND id NOT IN (SELECT id FROM buried))"""

_ASKED = """asked AS MATERIALIZED (SELECT key FROM json_array_elements_text(%(keys)s::json) AS key)"""

_NAMED = """named AS MATERIALIZED (
    SELECT given.scope, key, given.session, given.fence
    FROM json_to_recordset(%(leases)s::json) AS given(scope text, session text, fence bigint, keys json),
      json_array_elements_text(given.keys) AS key
    ORDER BY given.scope COLLATE "C", key COLLATE "C")"""
_AS_THEY_SAY = (
    "lease.scope = named.scope AND lease.key = named.key AND lease.fence = named.fence "
    "AND lease.session = named.session AND named.session IN (SELECT id FROM alive)"
)

OPEN_SESSION = f"""
WITH dead AS (
    DELETE FROM leasehold_session WHERE id IN (
      SELECT id FROM leasehold_session WHERE {_EXPIRED} ORDER BY id FOR UPDATE SKIP LOCKED)),
  brought_back AS (
    UPDATE leasehold_session SET until = {_MORE} WHERE until > {_MORE})
INSERT INTO leasehold_session (id, owner, duration, until)
SELECT id, owner, duration, {_MORE}
FROM (VALUES (%(id)s::text, %(owner)s::text, %(duration)s::float8)) AS new(id, owner, duration)
RETURNING id
"""

HEARTBEAT = f"""
WITH beat AS (
    UPDATE leasehold_session SET until = {_MORE} WHERE id = %(id)s AND NOT {_EXPIRED} RETURNING id),
  buried AS (DELETE FROM leasehold_session WHERE id = %(id)s AND {_EXPIRED} AND NOT EXISTS (SELECT FROM beat))
SELECT EXISTS (SELECT FROM beat) FROM {synchronous_commit("'off'")} AS soon
"""

CLOSE_SESSION = f"""
WITH closed AS (DELETE FROM leasehold_session WHERE id = %(id)s)
SELECT {synchronous_commit("%(durable)s")}
"""

ACQUIRE = f"""
WITH {_ASKED},
  stored AS MATERIALIZED (
    SELECT asked.key, lease.fence, lease.session FROM asked
    LEFT JOIN leasehold_lease AS lease ON lease.scope = %(scope)s AND lease.key = asked.key
    ORDER BY asked.key COLLATE "C"),
  involved AS MATERIALIZED (
    SELECT session FROM stored WHERE session IS NOT NULL UNION SELECT %(session)s::text),
  {_JUDGED},
  counted AS MATERIALIZED (SELECT nextval('leasehold_fence') AS fence FROM alive WHERE id = %(session)s),
  updated AS (
    UPDATE leasehold_lease AS lease SET session = %(session)s, fence = counted.fence FROM stored, counted
    WHERE lease.scope = %(scope)s AND lease.key = stored.key AND lease.fence = stored.fence
      AND (lease.session IS NULL OR lease.session NOT IN (SELECT id FROM alive))
    RETURNING lease.key, lease.fence),
  inserted AS (
    INSERT INTO leasehold_lease (scope, key, fence, session)
    SELECT %(scope)s, stored.key, counted.fence, %(session)s FROM stored, counted WHERE stored.fence IS NULL
    ORDER BY stored.key COLLATE "C" ON CONFLICT DO NOTHING
    RETURNING key, fence)
SELECT key, fence FROM updated UNION ALL SELECT key, fence FROM inserted
"""

RENEW = f"""
WITH {_NAMED}, involved AS MATERIALIZED (SELECT DISTINCT session FROM named), {_JUDGED},
  beat AS (
    UPDATE leasehold_session AS stored
    SET until = {_more("stored.duration")}
    FROM alive WHERE stored.id = alive.id RETURNING stored.id)
SELECT named.scope, named.key, named.session, named.fence
FROM named JOIN leasehold_lease AS lease ON {_AS_THEY_SAY},
  {synchronous_commit("'off'")} AS soon
WHERE named.session IN (SELECT id FROM beat)
"""

RELEASE = f"""
WITH {_NAMED}, involved AS MATERIALIZED (SELECT DISTINCT session FROM named), {_JUDGED},
  released AS (
    UPDATE leasehold_lease AS lease SET session = NULL FROM named WHERE {_AS_THEY_SAY}
    RETURNING named.scope, named.key, named.session, named.fence)
SELECT scope, key, session, fence FROM released, {synchronous_commit("%(durable)s")} AS soon
"""

CHANGE = f"""
WITH {_NAMED},
  involved AS MATERIALIZED (SELECT session FROM named UNION SELECT %(to)s::text), {_JUDGED},
  counted AS MATERIALIZED (SELECT nextval('leasehold_fence') AS fence FROM alive WHERE id = %(to)s),
  changed AS (
    UPDATE leasehold_lease AS lease SET session = %(to)s, fence = counted.fence FROM named, counted
    WHERE {_AS_THEY_SAY}
    RETURNING named.scope, named.key, named.session, named.fence, lease.fence AS new)
SELECT scope, key, session, fence, new FROM changed
"""

HOLDERS = f"""
WITH {_ASKED},
  stored AS MATERIALIZED (
    SELECT lease.key, lease.fence, lease.session FROM asked
    JOIN leasehold_lease AS lease ON lease.scope = %(scope)s AND lease.key = asked.key AND lease.session IS NOT NULL),
  involved AS MATERIALIZED (SELECT DISTINCT session FROM stored), {_JUDGED}
SELECT key, fence, id, owner, duration FROM stored JOIN alive ON id = session
"""

LOCK_LEASES = f"""
WITH {_ASKED}
SELECT lease.key FROM leasehold_lease AS lease JOIN asked ON lease.scope = %(scope)s AND lease.key = asked.key
ORDER BY lease.key FOR UPDATE OF lease
"""

FREE_LEASES = f"""
WITH {_ASKED}
UPDATE leasehold_lease AS lease SET session = NULL FROM asked
WHERE lease.scope = %(scope)s AND lease.key = asked.key AND lease.session IS NOT NULL
"""

LIST = """
SELECT lease.scope, lease.key, lease.fence,
  CASE WHEN isfinite(until) THEN extract(epoch FROM until - clock_timestamp())::float8 END, id, owner, duration
FROM leasehold_lease AS lease JOIN leasehold_session ON id = lease.session
WHERE (%(scope)s::text IS NULL OR lease.scope = %(scope)s)
  AND (%(keys)s::json IS NULL OR lease.key IN (SELECT json_array_elements_text(%(keys)s::json)))
  AND until > clock_timestamp()
ORDER BY lease.scope COLLATE "C", lease.key COLLATE "C" LIMIT %(most)s
"""

# Rows of keys that no session holds, among the last fences of which they are not.
_OLD = """
  fence <= (SELECT max(fence) FROM leasehold_lease) - %(recent)s
  AND (session IS NULL OR NOT EXISTS (SELECT FROM leasehold_session WHERE id = session))"""

COUNT_OLD = f"SELECT count(*) FROM leasehold_lease WHERE {_OLD}"

LOCK_TABLE = "LOCK TABLE leasehold_lease IN SHARE ROW EXCLUSIVE MODE"

CLEAR_OLD = f"""
DELETE FROM leasehold_lease WHERE (scope, key) IN (SELECT scope, key FROM leasehold_lease WHERE {_OLD} LIMIT %(most)s)
"""
