//! Settings about sockets, workers and names.

use super::{COUNT, Kind, Setting, setting};

pub const LISTENING: &[Setting] = &[
    setting("listen_addr", Kind::List, "", "The TCP addresses to listen on, or `*` for all. Empty: no TCP.").fixed(),
    setting(
        "listen_port",
        Kind::Integer { min: 1, max: 65_535 },
        "6432",
        "The port for TCP, and in the Unix socket's name.",
    )
    .fixed(),
    setting(
        "listen_backlog",
        Kind::Integer { min: 1, max: i32::MAX as u64 },
        "128",
        "How many connections the kernel queues for us, at most its own `net.core.somaxconn`. Where more come in one \
         burst it drops the first packet of the rest, and they come again a second later: set 4096 where thousands \
         of clients reconnect at once.",
    )
    .fixed(),
    setting(
        "unix_socket_dir",
        Kind::Path,
        "/tmp",
        "The directory of the Unix socket `.s.PGSQL.<listen_port>`; with a leading `@`, an abstract socket. Empty: \
         none. Also where servers of databases without `host` are looked for.",
    )
    .fixed(),
    setting("unix_socket_mode", Kind::FileMode, "0777", "The file mode of the Unix socket.").fixed(),
    setting("unix_socket_group", Kind::Text, "", "The group of the Unix socket, by name or number.").fixed(),
    setting(
        "so_reuseport",
        Kind::Switch,
        "0",
        "Whether other processes with the same setting may listen on the port beside this one; the kernel then deals out connections. For a \
         change of processes without a gap: one process uses every core.",
    )
    .fixed(),
    setting(
        "peer_id",
        Kind::Integer { min: 0, max: 16_383 },
        "0",
        "Our own number among the processes that pass cancel requests on to each other: see `[peers]`. 0: it is not one of them.",
    )
    .fixed(),
];

pub const DETAILS: &[Setting] = &[
    setting(
        "tcp_defer_accept",
        COUNT,
        "1",
        "Whether the kernel waits for a client's first bytes before it hands over the connection: 0: no; 1: for up to \
         45 seconds; more: that many seconds.",
    )
    .fixed(),
    setting(
        "tcp_keepalive",
        Kind::Switch,
        "1",
        "Whether TCP keepalive is on, for clients and servers. Changes of this and of the other options of TCP concern connections that are made from then on.",
    ),
    setting(
        "tcp_keepidle",
        COUNT,
        "0",
        "After how many idle seconds the first keepalive is sent. 0: the system's value.",
    ),
    setting("tcp_keepintvl", COUNT, "0", "How many seconds lie between keepalives. 0: the system's value."),
    setting("tcp_keepcnt", COUNT, "0", "How many keepalives may be lost. 0: the system's value."),
    setting(
        "tcp_user_timeout",
        Kind::Milliseconds,
        "0",
        "How long sent bytes may stay unacknowledged (TCP_USER_TIMEOUT). 0: the system's value.",
    ),
    setting(
        "tcp_socket_buffer",
        Kind::Bytes { min: 0, max: i32::MAX as u64 },
        "0",
        "The size of each socket's buffers. 0: the system's value.",
    ),
    setting(
        "dns_max_ttl",
        Kind::Seconds,
        "15",
        "How long the addresses of a server's name are kept at most. Where the name servers say less, that counts. See \
         [operations.md](operations.md#names-of-servers).",
    ),
    setting(
        "dns_nxdomain_ttl",
        Kind::Seconds,
        "15",
        "How long it is kept that a name was not found, or that nobody has answered.",
    ),
    setting(
        "dns_zone_check_period",
        Kind::Seconds,
        "0",
        "How often the serial number (SOA) of each zone is asked for that a known host is in, which is what follows its first dot. Where it \
         has grown, the hosts of the zone are asked for again, and servers at addresses that are left are replaced. 0: never.",
    ),
    setting(
        "resolv_conf",
        Kind::Path,
        "",
        "A file like /etc/resolv.conf, in its place: name servers, `search`, `ndots`, `timeout` and `attempts`. Names are then found in \
         /etc/hosts and by those servers alone.",
    )
    .unset(),
    setting(
        "pkt_buf",
        Kind::Bytes { min: 1, max: i32::MAX as u64 },
        "4096",
        "The size of the buffer per active socket.",
    )
    .fixed()
    .no_effect("buffers belong to workers, not to sockets"),
    setting("sbuf_loopcnt", COUNT, "5", "How often one socket is read before the others have their turn.")
        .no_effect("every socket with something to read has its turn in each round"),
];
