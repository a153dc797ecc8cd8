"""The SQL of ownership and checkpoints in Postgres: each statement is one request and one transaction.

Records come as one JSON array, already in key order and no key twice, so that the number of requests does not
depend on how many there are. Rows that exist are locked in that order (`wanted`, `stored`) before any is
written. A comparison that had to wait for another writer is made again on what that one wrote.
"""

from __future__ import annotations

_GROUP = "namespace = %(namespace)s AND hub = %(hub)s AND consumer_group = %(consumer_group)s"
_KEY = "namespace, hub, consumer_group, partition"
_SAME_KEY = (
    "stored.namespace = new.namespace AND stored.hub = new.hub "
    "AND stored.consumer_group = new.consumer_group AND stored.partition = new.partition"
)
_KEY_TYPES = "namespace text, hub text, consumer_group text, partition text"
_VALUES = "owner_id, owner_level, nonce, successor, claimed_at, failures, last_error"
_MAY_BE_LOST = "(SELECT set_config('synchronous_commit', 'off', true))"
"""For this transaction alone: what it writes may be lost with the power, and nobody waits for the disk."""


def _epoch(column: str) -> str:
    return f"extract(epoch FROM {column})::float8"


LIST_OWNERSHIP = f"""
SELECT {_epoch("clock_timestamp()")},
  coalesce((SELECT json_agg(json_build_array(partition, owner_id, owner_level, etag, {_epoch("last_modified")}, nonce,
      successor, claimed_at, failures, last_error)) FROM leasehold_ownership WHERE {_GROUP}), '[]'),
  coalesce((SELECT json_agg(json_build_array(owner_id, pipeline, strategy, capacity, maximum, {_epoch("created")},
      {_epoch("last_modified")}, etag)) FROM leasehold_presence WHERE {_GROUP}), '[]'),
  coalesce((SELECT json_agg(json_build_array(partition, owner_level, asker)) FROM leasehold_ask WHERE {_GROUP}), '[]')
"""

BRING_BACK = f"""
WITH records AS (UPDATE leasehold_ownership SET last_modified = clock_timestamp()
    WHERE {_GROUP} AND last_modified > clock_timestamp()),
  presences AS (UPDATE leasehold_presence SET last_modified = clock_timestamp()
    WHERE {_GROUP} AND last_modified > clock_timestamp())
SELECT {_MAY_BE_LOST}
"""

_WANTED = f"""wanted AS MATERIALIZED (SELECT * FROM json_to_recordset(%(records)s::json) AS new({_KEY_TYPES},
    expected text, etag text, owner_id text, owner_level bigint, nonce text, successor text, claimed_at bigint,
    failures bigint, last_error text))"""


def _written(condition: str) -> str:
    """Lock what still has the ETag that was named, in key order; then write it."""
    return f"""locked AS MATERIALIZED (
    SELECT new.* FROM wanted AS new JOIN leasehold_ownership AS stored ON {_SAME_KEY}
    WHERE stored.etag = new.expected {condition}
    ORDER BY new.namespace COLLATE "C", new.hub COLLATE "C", new.consumer_group COLLATE "C", new.partition COLLATE "C"
    FOR UPDATE OF stored),
  updated AS (
    UPDATE leasehold_ownership AS stored SET ({_VALUES}, etag, last_modified) =
      (new.owner_id, new.owner_level, new.nonce, new.successor, new.claimed_at, new.failures, new.last_error,
       new.etag, clock_timestamp())
    FROM locked AS new WHERE {_SAME_KEY} AND stored.etag = new.expected
    RETURNING stored.etag, {_epoch("stored.last_modified")} AS modified)"""


CLAIM = f"""
WITH {_WANTED}, {_written("")},
  inserted AS (
    INSERT INTO leasehold_ownership ({_KEY}, {_VALUES}, etag, last_modified)
    SELECT {_KEY}, {_VALUES}, etag, clock_timestamp() FROM wanted WHERE expected IS NULL
    ORDER BY namespace COLLATE "C", hub COLLATE "C", consumer_group COLLATE "C", partition COLLATE "C"
    ON CONFLICT DO NOTHING
    RETURNING etag, {_epoch("last_modified")} AS modified)
SELECT etag, modified FROM updated UNION ALL SELECT etag, modified FROM inserted
"""

RELINQUISH = f"WITH {_WANTED}, {_written('')} SELECT etag, modified FROM updated"

RENEW = f"""
WITH {_WANTED}, {_written("AND stored.owner_id = new.owner_id AND stored.owner_level = new.owner_level")},
  present AS (
    INSERT INTO leasehold_presence AS stored (namespace, hub, consumer_group, owner_id, pipeline, strategy, capacity,
      maximum, created, last_modified, etag)
    SELECT namespace, hub, consumer_group, owner_id, pipeline, strategy, capacity, maximum, now, now, etag
    FROM json_to_recordset(%(presence)s::json) AS new(namespace text, hub text, consumer_group text, owner_id text,
      pipeline text, strategy text, capacity float8, maximum bigint, etag text), clock_timestamp() AS now
    ON CONFLICT (namespace, hub, consumer_group, owner_id) DO UPDATE SET
      (pipeline, strategy, capacity, maximum, last_modified, etag) =
      (excluded.pipeline, excluded.strategy, excluded.capacity, excluded.maximum, excluded.last_modified,
       excluded.etag)),
  soon AS MATERIALIZED (SELECT {_MAY_BE_LOST})
SELECT etag, modified FROM updated WHERE (SELECT count(*) FROM soon) = 1
"""

WITHDRAW_PRESENCE = f"""
WITH gone AS (DELETE FROM leasehold_presence
    WHERE {_GROUP} AND owner_id IN (SELECT json_array_elements_text(%(owner_ids)s::json)))
SELECT {_MAY_BE_LOST}
"""

_ASKED = f"json_to_recordset(%(records)s::json) AS new({_KEY_TYPES}, owner_level bigint, asker text)"

ASK = f"""
WITH asked AS (
  INSERT INTO leasehold_ask ({_KEY}, owner_level, asker) SELECT {_KEY}, owner_level, asker FROM {_ASKED}
  ON CONFLICT ({_KEY}) DO UPDATE SET owner_level = excluded.owner_level, asker = excluded.asker)
SELECT {_MAY_BE_LOST}
"""

WITHDRAW_ASKS = f"""
WITH gone AS (DELETE FROM leasehold_ask AS stored USING {_ASKED}
    WHERE {_SAME_KEY} AND stored.owner_level = new.owner_level AND stored.asker = new.asker)
SELECT {_MAY_BE_LOST}
"""

LIST_CHECKPOINTS = (
    f'SELECT partition, sequence_number, owner_level, "offset", data FROM leasehold_checkpoint WHERE {_GROUP}'
)

_CHECKPOINTS = (
    f"json_to_recordset(%(records)s::json) AS new({_KEY_TYPES}, sequence_number bigint, owner_level bigint, "
    '"offset" text, data text)'
)
_READABLE = "stored.owner_level >= 0 AND stored.sequence_number >= -1"
_PUT_CHECKPOINTS = f"""
INSERT INTO leasehold_checkpoint AS stored ({_KEY}, sequence_number, owner_level, "offset", data)
SELECT {_KEY}, sequence_number, owner_level, "offset", data FROM {_CHECKPOINTS}
ON CONFLICT ({_KEY}) DO UPDATE SET """

RAISE_OWNER_LEVEL = f"""{_PUT_CHECKPOINTS} owner_level = CASE WHEN {_READABLE}
    THEN greatest(stored.owner_level, excluded.owner_level) ELSE stored.owner_level END
RETURNING {_KEY}, sequence_number, owner_level, "offset", data
"""

UPDATE_CHECKPOINTS = f"""{_PUT_CHECKPOINTS}
  sequence_number = excluded.sequence_number, owner_level = excluded.owner_level, "offset" = excluded."offset",
  data = excluded.data
WHERE NOT ({_READABLE}) OR excluded.owner_level > stored.owner_level
  OR (excluded.owner_level = stored.owner_level AND excluded.sequence_number >= stored.sequence_number)
RETURNING {_KEY}
"""

READ_CHECKPOINTS = f"""
SELECT stored.namespace, stored.hub, stored.consumer_group, stored.partition, stored.sequence_number,
  stored.owner_level
FROM leasehold_checkpoint AS stored JOIN {_CHECKPOINTS} ON {_SAME_KEY}
"""

BINDING = """
SELECT pipeline, sink FROM leasehold_binding
WHERE namespace = %(namespace)s AND hub = %(hub)s AND consumer_group = %(consumer_group)s
"""

_BIND = """
INSERT INTO leasehold_binding AS stored (namespace, hub, consumer_group, pipeline, sink)
VALUES (%(namespace)s, %(hub)s, %(consumer_group)s, %(pipeline)s, %(sink)s)
ON CONFLICT (namespace, hub, consumer_group) DO UPDATE SET """

BIND = f"{_BIND} pipeline = stored.pipeline RETURNING stored.pipeline, stored.sink"

REBIND = f"{_BIND} pipeline = excluded.pipeline, sink = excluded.sink RETURNING stored.pipeline, stored.sink"
