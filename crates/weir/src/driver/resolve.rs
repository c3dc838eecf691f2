//! Names of hosts, remembered for a while. Blocks: belongs on a thread of its own.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::Instant;

use super::options::DnsOptions;

/// Names remembered at most; a configuration with more forgets them all at once.
const NAMES_MAX: usize = 1024;

type Found = Result<Vec<IpAddr>, String>;

pub struct Resolver {
    dns: DnsOptions,
    /// What was found, and until when it counts.
    known: HashMap<Arc<str>, (Instant, Found)>,
}

impl Resolver {
    pub fn new(dns: DnsOptions) -> Self {
        Self { dns, known: HashMap::new() }
    }

    pub fn resolve(&mut self, host: &Arc<str>, port: u16) -> Result<Vec<SocketAddr>, String> {
        let now = Instant::now();
        let found = match self.known.get(host) {
            Some((until, found)) if *until > now => found.clone(),
            _ => self.ask(host, now),
        };
        found.map(|ips| ips.into_iter().map(|ip| SocketAddr::new(ip, port)).collect())
    }

    fn ask(&mut self, host: &Arc<str>, now: Instant) -> Found {
        let mut ips: Vec<IpAddr> = Vec::new();
        let found = (&**host, 0u16).to_socket_addrs().map_err(|error| format!("cannot resolve host {host}: {error}"));
        let found = found.and_then(|addresses| {
            for address in addresses {
                if !ips.contains(&address.ip()) {
                    ips.push(address.ip());
                }
            }
            if ips.is_empty() { Err(format!("host {host} has no address")) } else { Ok(ips) }
        });
        if self.known.len() >= NAMES_MAX {
            self.known.clear();
        }
        let ttl = if found.is_ok() { self.dns.found_ttl } else { self.dns.failed_ttl };
        self.known.insert(host.clone(), (now + ttl, found.clone()));
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resolves_and_remembers() {
        let mut resolver = Resolver::new(DnsOptions::default());
        let host: Arc<str> = "localhost".into();
        let found = resolver.resolve(&host, 5432).unwrap();
        assert!(found.iter().all(|address| address.ip().is_loopback() && address.port() == 5432));
        resolver.known.get_mut(&host).unwrap().1 = Err("remembered".to_owned());
        assert_eq!(resolver.resolve(&host, 1), Err("remembered".to_owned()));
        resolver.known.get_mut(&host).unwrap().0 = Instant::now();
        assert!(resolver.resolve(&host, 1).is_ok());
    }
}
