//! How the log calls a connection, and the console: as PgBouncer does (`log_socket_prefix`, src/util.c at 1.25.2), so that what reads its log reads ours.

use crate::id::Side;
use crate::names::{PoolName, shown};
use crate::peer::{Endpoint, Peer};

/// PgBouncer prints pointers here; ours are names without a meaning of their own too, equal where PgBouncer's are.
pub(crate) fn pointer(side: Side, number: u64) -> String {
    format!("0x{:x}", (number << 1) | u64::from(side == Side::Server))
}

/// A client, as far as it has said who it is.
pub(crate) fn of_client(number: u64, named: Option<(&str, &str)>, peer: &Peer) -> String {
    let (database, user) = named.unwrap_or(("(nodb)", "(nouser)"));
    format!("C-{}: {}/{}@{}", pointer(Side::Client, number), shown(database), shown(user), address(peer))
}

/// A server. `pool`: none for what carries a cancel request. `peer`: where it was connected to, once it is.
pub(crate) fn of_server(
    number: u64,
    pool: Option<&PoolName>,
    peer: Option<&Peer>,
    endpoint: Option<&Endpoint>,
) -> String {
    let (database, user) = pool.map_or(("(nodb)", "(cancel)"), |pool| (&*pool.database, &*pool.user));
    let address = match (peer, endpoint) {
        (Some(peer @ Peer::Tcp { .. }), _) => address(peer),
        (_, Some(Endpoint::Tcp { host, port })) => format!("{host}:{port}"),
        (_, Some(Endpoint::Unix { path })) => format!("unix:{}", path.rsplit_once('.').map_or("0", |(_, port)| port)),
        (_, None) => "(nohost):0".to_owned(),
    };
    format!("S-{}: {}/{}@{address}", pointer(Side::Server, number), shown(database), shown(user))
}

/// Where a client comes from.
pub(crate) fn address(peer: &Peer) -> String {
    match peer {
        Peer::Tcp { ip, port } => std::net::SocketAddr::new(*ip, *port).to_string(),
        Peer::Unix { pid: Some(pid), port, .. } => format!("unix({pid}):{port}"),
        Peer::Unix { pid: None, port, .. } => format!("unix:{port}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_are_called_as_by_pgbouncer() {
        let four = Peer::Tcp { ip: "127.0.0.1".parse().unwrap(), port: 40_000 };
        assert_eq!(of_client(3, None, &four), "C-0x6: (nodb)/(nouser)@127.0.0.1:40000");
        let six = Peer::Tcp { ip: "::1".parse().unwrap(), port: 5432 };
        assert_eq!(of_client(4, Some(("shop", "ada")), &six), "C-0x8: shop/ada@[::1]:5432");
        let local = Peer::Unix { uid: Some(1), pid: Some(77), port: 6432 };
        assert_eq!(of_client(5, Some(("shop", "ada")), &local), "C-0xa: shop/ada@unix(77):6432");

        let pool = PoolName::new("shop".into(), "ada".into());
        let named = Endpoint::Tcp { host: "db".into(), port: 5432 };
        assert_eq!(of_server(1, Some(&pool), None, Some(&named)), "S-0x3: shop/ada@db:5432");
        assert_eq!(of_server(1, Some(&pool), Some(&four), Some(&named)), "S-0x3: shop/ada@127.0.0.1:40000");
        let path = Endpoint::Unix { path: "/run/.s.PGSQL.5433".into() };
        assert_eq!(of_server(1, None, Some(&Peer::NOWHERE), Some(&path)), "S-0x3: (nodb)/(cancel)@unix:5433");
    }
}
