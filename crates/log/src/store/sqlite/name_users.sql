-- The numbers of tables are those of `Table`: 1 sessions, 2 their index, 9 keys, 14 the index of metadata, 18 tasks,
-- 19 children of tasks, 20 webhooks, 21 deliveries, 22 positions, 24 open tasks. A key of a record began with the name of the
-- tenant and a zero byte, and only the tenant `default` existed: its 8 bytes are replaced.

CREATE TEMP TABLE owner_of AS
SELECT key AS session,
       'default/' || CASE WHEN owner IN ('admin', 'attach') THEN 'owner' ELSE owner END AS owner
FROM (SELECT key, json_extract(CAST(value AS TEXT), '$.owner') AS owner FROM record WHERE tbl = 1);
CREATE UNIQUE INDEX temp.owner_of_session ON owner_of (session);

CREATE TEMP TABLE user_of_task AS
SELECT substr(key, 9) AS place, json_extract(CAST(value AS TEXT), '$.task.taskId') AS task,
       'default/' || CASE WHEN user IN ('admin', 'attach') THEN 'owner' ELSE user END AS owner
FROM (SELECT key, value, json_extract(CAST(value AS TEXT), '$.task.by') AS user FROM record WHERE tbl = 18);

UPDATE record
SET value = CAST(json_remove(json_set(CAST(value AS TEXT), '$.owner',
    (SELECT owner FROM owner_of WHERE session = record.key)), '$.tenant') AS BLOB)
WHERE tbl = 1;

CREATE TEMP TABLE moved AS
SELECT tbl, key AS old_key,
       CASE
           WHEN tbl IN (2, 14) THEN (SELECT owner FROM owner_of WHERE session = substr(key, -16))
           WHEN tbl = 18 THEN (SELECT owner FROM user_of_task WHERE place = substr(key, 9))
           WHEN tbl = 19 THEN (SELECT owner FROM user_of_task WHERE task = json_extract(CAST(value AS TEXT), '$'))
           WHEN tbl = 24 THEN (SELECT owner FROM user_of_task WHERE task = json_extract(CAST(value AS TEXT), '$.task'))
           ELSE 'default/owner'
       END AS owner,
       CASE
           WHEN tbl = 2 THEN (SELECT session.value FROM record AS session WHERE tbl = 1 AND session.key = substr(record.key, -16))
           ELSE value
       END AS value
FROM record
WHERE tbl IN (2, 14, 18, 19, 20, 21, 22, 24);
DELETE FROM record WHERE tbl IN (2, 14, 18, 19, 20, 21, 22, 24);
INSERT INTO record (tbl, key, value)
SELECT tbl, CAST(CAST(owner AS BLOB) || substr(old_key, 8) AS BLOB), value FROM moved WHERE owner IS NOT NULL AND value IS NOT NULL;

-- Table 26 lists the sessions of each user in the order of their creation.
INSERT INTO record (tbl, key, value)
SELECT 26, CAST(CAST(owner AS BLOB) || x'00' || session AS BLOB), x'' FROM owner_of;

-- A link had a key of the name `owner`.
UPDATE record
SET value = CAST(json_remove(json_set(CAST(value AS TEXT),
    '$.user', json_extract(CAST(value AS TEXT), '$.tenant') || '/owner',
    '$.name', CASE json_extract(CAST(value AS TEXT), '$.name') WHEN 'owner' THEN 'link' ELSE 'attach' END,
    '$.kind', CASE json_extract(CAST(value AS TEXT), '$.name') WHEN 'owner' THEN 'link' ELSE 'local' END), '$.tenant') AS BLOB)
WHERE tbl = 9 AND json_extract(CAST(value AS TEXT), '$.kind') = 'link';
UPDATE record
SET value = CAST(json_remove(json_set(CAST(value AS TEXT), '$.user',
    json_extract(CAST(value AS TEXT), '$.tenant') || '/' || json_extract(CAST(value AS TEXT), '$.name')), '$.tenant') AS BLOB)
WHERE tbl = 9 AND json_extract(CAST(value AS TEXT), '$.kind') = 'named';

UPDATE run SET tenant = coalesce((SELECT owner_of.owner FROM owner_of WHERE owner_of.session = run.session), 'default/owner')
WHERE tenant = 'default';
-- The summary of a log contains its owner. The next start computes it again.
DELETE FROM log;
UPDATE meta SET value = 0 WHERE key IN ('summed_pos', 'summed_crc');

DROP TABLE temp.moved;
DROP TABLE temp.user_of_task;
DROP TABLE temp.owner_of;
