//! Keys of the lists in `[databases]`, `[users]` and `[peers]`.

use super::{COUNT, Kind, SESSION_STATES, Section, Setting, setting};

const PORT: Kind = Kind::Integer { min: 1, max: 65_535 };
const POOL_MODES: Kind = Kind::Choice(&["session", "transaction", "statement"]);

const ROUTES: Kind = Kind::Choice(&["owner", "any", "coordinator"]);
const ROUTES_DOC: &str = "Where transactions of a cluster's database go. `owner`: to the node that has their rows, where their first statement \
    with a key says which that is. `any`: to the node that has least to do. `coordinator`: to that. Whatever only the coordinator does right it does, \
    whatever this says. Default: owner.";
const FAN_OUT_DOC: &str = "In a cluster: servers of a user's at the coordinator for transactions that begin with a statement of several nodes' rows. \
    Each such statement has its server open connections to all nodes, so that fewer at a time do more. They count beside `pool_size`. \
    Default: they are among those of the coordinator, and have no limit of their own.";

const fn database(name: &'static str, kind: Kind, doc: &'static str) -> Setting {
    setting(name, kind, "", doc).of(Section::Databases)
}

const fn user(name: &'static str, kind: Kind, doc: &'static str) -> Setting {
    setting(name, kind, "", doc).of(Section::Users)
}

const fn peer(name: &'static str, kind: Kind, doc: &'static str) -> Setting {
    setting(name, kind, "", doc).of(Section::Peers)
}

pub const DATABASES: &[Setting] = &[
    database("dbname", Kind::Text, "The name of the database on the server. Default: the client's name for it."),
    database(
        "host",
        Kind::List,
        "The server: a name, an address, a directory of a Unix socket, `@` for an abstract one, or several between \
         commas (`load_balance_hosts`). Default: the Unix socket in `unix_socket_dir`.",
    ),
    database("port", PORT, "The server's port. Default: 5432."),
    database(
        "user",
        Kind::Text,
        "The user as whom every client of this database is logged in, which makes one pool of them. Default: the \
         client's.",
    ),
    database("password", Kind::Hidden, "The password of `user`. Default: the one in `auth_file`."),
    database("pool_size", COUNT, "Instead of `default_pool_size`."),
    database("min_pool_size", COUNT, "Instead of the global one."),
    database("reserve_pool_size", COUNT, "Instead of the global one."),
    database("reserve_pool", COUNT, "The older name of `reserve_pool_size`."),
    database("max_db_connections", COUNT, "Instead of the global one."),
    database("max_db_client_connections", COUNT, "Instead of the global one."),
    database("server_lifetime", Kind::Seconds, "Instead of the global one."),
    database("pool_mode", POOL_MODES, "Instead of the global one."),
    database("session_state", SESSION_STATES, "Instead of the global one.").own(),
    database(
        "cluster",
        Kind::Choice(&["citus"]),
        "The database is a cluster's: `host` names one node of it or several, and the rest is read from its catalogue. Each transaction goes \
         to the node that has its rows (`route`, [cluster.md](cluster.md)), each node has a pool of the size that this entry says, and \
         `max_db_connections` is one budget for all of them. In transaction mode.",
    )
    .own(),
    database("route", ROUTES, ROUTES_DOC).own(),
    database(
        "balanced",
        Kind::Text,
        "`host:port` at which a load balancer leads to any of a cluster's nodes, where their own addresses cannot be reached. `host` names the \
         coordinator then, or the same address. Each connection is asked which node it is at (`pg_dist_local_group`), and closed where that is another than it was made for.",
    )
    .own(),
    database("fan_out_pool_size", COUNT, FAN_OUT_DOC).own(),
    database(
        "connect_query",
        Kind::Text,
        "A query run after each connect to a server. What it sets, a client's `RESET` or `DISCARD ALL` on that server undoes, \
         and so does `server_reset_query`: parameters to last belong into `ALTER ROLE ... SET` or `ALTER DATABASE ... SET`.",
    ),
    database("client_encoding", Kind::Text, "Sent to the server when connecting."),
    database("datestyle", Kind::Text, "Sent to the server when connecting."),
    database("timezone", Kind::Text, "Sent to the server when connecting."),
    database("application_name", Kind::Text, "Sent to the server when connecting."),
    database(
        "load_balance_hosts",
        Kind::Choice(&["round-robin", "disable"]),
        "How several hosts share a pool's servers. `round-robin`: each new server is made at the next of them. `disable`: at the first, \
         until a login fails there; then at the next. A pool's first login to one of these is made alone, and others wait for how it ends. A host where logins fail is left out as long as `server_login_retry` says, and then \
         tried by one login at a time in its turn. While another host works that takes a server's place beside those that clients need, so \
         a pool of one or two servers does not try it.",
    )
    .or("round-robin"),
    database("auth_user", Kind::Text, "Instead of the global one."),
    database("auth_query", Kind::Text, "Instead of the global one."),
    database("auth_dbname", Kind::Text, "Instead of the global one."),
    database("query_wait_timeout", Kind::Seconds, "Instead of the global one."),
];

pub const USERS: &[Setting] = &[
    user("pool_mode", POOL_MODES, "Instead of the database's and the global one."),
    user("session_state", SESSION_STATES, "Instead of the database's and the global one.").own(),
    user("route", ROUTES, "Instead of the database's.").own(),
    user("fan_out_pool_size", COUNT, "Instead of the database's.").own(),
    user("pool_size", COUNT, "Instead of the database's and `default_pool_size`."),
    user("reserve_pool_size", COUNT, "Instead of the database's and the global one."),
    user("max_user_connections", COUNT, "Instead of the global one."),
    user("max_user_client_connections", COUNT, "Instead of the global one."),
    user("query_timeout", Kind::Seconds, "Instead of the global one."),
    user("idle_transaction_timeout", Kind::Seconds, "Instead of the global one."),
    user("transaction_timeout", Kind::Seconds, "Instead of the global one."),
    user("client_idle_timeout", Kind::Seconds, "Instead of the global one."),
    user("query_wait_timeout", Kind::Seconds, "Instead of the database's and the global one."),
];

pub const PEERS: &[Setting] = &[
    peer("host", Kind::Text, "Where the peer listens: a name, an address, or a directory of a Unix socket."),
    peer("port", PORT, "The peer's port. Default: 6432."),
    peer(
        "pool_size",
        COUNT,
        "How many cancel requests may be on their way to the peer at once; others wait, up to 1,024 of them. 0: no limit. Default: `default_pool_size`.",
    ),
];
