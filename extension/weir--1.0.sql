-- The pooler as the server has it: what it does, and what it is told to do.
\echo Use "CREATE EXTENSION weir" to load this file. \quit

-- The background worker, where it does not run yet
CREATE FUNCTION weir.start() RETURNS void
    AS 'MODULE_PATHNAME', 'weir_start' LANGUAGE C VOLATILE;

-- What the console's SHOW says: an object for each row
CREATE FUNCTION weir.show(what text) RETURNS SETOF json
    AS 'MODULE_PATHNAME', 'weir_show' LANGUAGE C VOLATILE STRICT ROWS 100;

-- Of one database, or of all where it is NULL. weir.pause comes back when its servers are closed.
CREATE FUNCTION weir.pause(database name DEFAULT NULL) RETURNS void
    AS 'MODULE_PATHNAME', 'weir_pause' LANGUAGE C VOLATILE;
CREATE FUNCTION weir.resume(database name DEFAULT NULL) RETURNS void
    AS 'MODULE_PATHNAME', 'weir_resume' LANGUAGE C VOLATILE;
CREATE FUNCTION weir.reconnect(database name DEFAULT NULL) RETURNS void
    AS 'MODULE_PATHNAME', 'weir_reconnect' LANGUAGE C VOLATILE;
CREATE FUNCTION weir.kill(database name DEFAULT NULL) RETURNS void
    AS 'MODULE_PATHNAME', 'weir_kill' LANGUAGE C VOLATILE;
-- By the id that weir.clients has
CREATE FUNCTION weir.kill_client(id bigint) RETURNS void
    AS 'MODULE_PATHNAME', 'weir_kill_client' LANGUAGE C VOLATILE STRICT;

CREATE VIEW weir.pools AS SELECT
    r ->> 'database' AS database,
    r ->> 'user' AS "user",
    (r ->> 'cl_active')::integer AS cl_active,
    (r ->> 'cl_waiting')::integer AS cl_waiting,
    (r ->> 'cl_active_cancel_req')::integer AS cl_active_cancel_req,
    (r ->> 'cl_waiting_cancel_req')::integer AS cl_waiting_cancel_req,
    (r ->> 'sv_active')::integer AS sv_active,
    (r ->> 'sv_active_cancel')::integer AS sv_active_cancel,
    (r ->> 'sv_being_canceled')::integer AS sv_being_canceled,
    (r ->> 'sv_idle')::integer AS sv_idle,
    (r ->> 'sv_used')::integer AS sv_used,
    (r ->> 'sv_tested')::integer AS sv_tested,
    (r ->> 'sv_login')::integer AS sv_login,
    (r ->> 'maxwait')::integer AS maxwait,
    (r ->> 'maxwait_us')::integer AS maxwait_us,
    r ->> 'pool_mode' AS pool_mode,
    r ->> 'load_balance_hosts' AS load_balance_hosts
    FROM weir.show('pools') r;

CREATE VIEW weir.clients AS SELECT
    r ->> 'type' AS type,
    r ->> 'user' AS "user",
    r ->> 'database' AS database,
    r ->> 'replication' AS replication,
    r ->> 'state' AS state,
    r ->> 'addr' AS addr,
    (r ->> 'port')::integer AS port,
    r ->> 'local_addr' AS local_addr,
    (r ->> 'local_port')::integer AS local_port,
    r ->> 'connect_time' AS connect_time,
    r ->> 'request_time' AS request_time,
    (r ->> 'wait')::integer AS wait,
    (r ->> 'wait_us')::integer AS wait_us,
    (r ->> 'close_needed')::integer AS close_needed,
    r ->> 'ptr' AS ptr,
    r ->> 'link' AS link,
    (r ->> 'remote_pid')::integer AS remote_pid,
    r ->> 'tls' AS tls,
    r ->> 'application_name' AS application_name,
    (r ->> 'prepared_statements')::integer AS prepared_statements,
    (r ->> 'id')::bigint AS id
    FROM weir.show('clients') r;

CREATE VIEW weir.servers AS SELECT
    r ->> 'type' AS type,
    r ->> 'user' AS "user",
    r ->> 'database' AS database,
    r ->> 'replication' AS replication,
    r ->> 'state' AS state,
    r ->> 'addr' AS addr,
    (r ->> 'port')::integer AS port,
    r ->> 'local_addr' AS local_addr,
    (r ->> 'local_port')::integer AS local_port,
    r ->> 'connect_time' AS connect_time,
    r ->> 'request_time' AS request_time,
    (r ->> 'wait')::integer AS wait,
    (r ->> 'wait_us')::integer AS wait_us,
    (r ->> 'close_needed')::integer AS close_needed,
    r ->> 'ptr' AS ptr,
    r ->> 'link' AS link,
    (r ->> 'remote_pid')::integer AS remote_pid,
    r ->> 'tls' AS tls,
    r ->> 'application_name' AS application_name,
    (r ->> 'prepared_statements')::integer AS prepared_statements,
    (r ->> 'id')::bigint AS id
    FROM weir.show('servers') r;

CREATE VIEW weir.stats AS SELECT
    r ->> 'database' AS database,
    (r ->> 'total_server_assignment_count')::numeric AS total_server_assignment_count,
    (r ->> 'total_xact_count')::numeric AS total_xact_count,
    (r ->> 'total_query_count')::numeric AS total_query_count,
    (r ->> 'total_received')::numeric AS total_received,
    (r ->> 'total_sent')::numeric AS total_sent,
    (r ->> 'total_xact_time')::numeric AS total_xact_time,
    (r ->> 'total_query_time')::numeric AS total_query_time,
    (r ->> 'total_wait_time')::numeric AS total_wait_time,
    (r ->> 'total_client_parse_count')::numeric AS total_client_parse_count,
    (r ->> 'total_server_parse_count')::numeric AS total_server_parse_count,
    (r ->> 'total_bind_count')::numeric AS total_bind_count,
    (r ->> 'avg_server_assignment_count')::numeric AS avg_server_assignment_count,
    (r ->> 'avg_xact_count')::numeric AS avg_xact_count,
    (r ->> 'avg_query_count')::numeric AS avg_query_count,
    (r ->> 'avg_recv')::numeric AS avg_recv,
    (r ->> 'avg_sent')::numeric AS avg_sent,
    (r ->> 'avg_xact_time')::numeric AS avg_xact_time,
    (r ->> 'avg_query_time')::numeric AS avg_query_time,
    (r ->> 'avg_wait_time')::numeric AS avg_wait_time,
    (r ->> 'avg_client_parse_count')::numeric AS avg_client_parse_count,
    (r ->> 'avg_server_parse_count')::numeric AS avg_server_parse_count,
    (r ->> 'avg_bind_count')::numeric AS avg_bind_count,
    (r ->> 'total_client_login_count')::numeric AS total_client_login_count,
    (r ->> 'avg_client_login_count')::numeric AS avg_client_login_count,
    (r ->> 'total_pins_parameters')::numeric AS total_pins_parameters,
    (r ->> 'total_pins_temporary_objects')::numeric AS total_pins_temporary_objects,
    (r ->> 'total_pins_advisory_locks')::numeric AS total_pins_advisory_locks,
    (r ->> 'total_pins_listen')::numeric AS total_pins_listen,
    (r ->> 'total_pins_cursors')::numeric AS total_pins_cursors,
    (r ->> 'total_pins_prepare')::numeric AS total_pins_prepare,
    (r ->> 'total_pins_for_the_session')::numeric AS total_pins_for_the_session
    FROM weir.show('stats') r;

CREATE VIEW weir.pins AS SELECT
    r ->> 'database' AS database,
    r ->> 'user' AS "user",
    (r ->> 'client_id')::bigint AS client_id,
    (r ->> 'server_id')::bigint AS server_id,
    (r ->> 'remote_pid')::integer AS remote_pid,
    r ->> 'state' AS state,
    r ->> 'pinned_at' AS pinned_at,
    (r ->> 'pinned_seconds')::bigint AS pinned_seconds,
    r ->> 'query' AS query
    FROM weir.show('pins') r;

CREATE VIEW weir.settings AS SELECT
    r ->> 'key' AS name,
    r ->> 'value' AS value,
    r ->> 'default' AS "default",
    r ->> 'changeable' AS changeable
    FROM weir.show('config') r;

REVOKE ALL ON FUNCTION weir.start(), weir.show(text), weir.pause(name), weir.resume(name),
    weir.reconnect(name), weir.kill(name), weir.kill_client(bigint) FROM PUBLIC;
GRANT USAGE ON SCHEMA weir TO pg_monitor, pg_signal_backend;
GRANT EXECUTE ON FUNCTION weir.show(text) TO pg_monitor;
GRANT SELECT ON weir.pools, weir.clients, weir.servers, weir.stats, weir.pins, weir.settings TO pg_monitor;
GRANT EXECUTE ON FUNCTION weir.pause(name), weir.resume(name), weir.reconnect(name), weir.kill(name),
    weir.kill_client(bigint) TO pg_signal_backend;

SELECT weir.start();
