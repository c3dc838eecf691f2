//! What hosts are called, for records of `auth_hba_file` that name one.

use std::net::{IpAddr, SocketAddr};

use crate::driver::resolve::ask_system;

/// A name that leads back to the address: anybody may have his own called what he likes (`check_hostname`, src/backend/libpq/hba.c at 18).
pub fn name_of(ip: IpAddr) -> Option<String> {
    let (name, _) = dns_lookup::getnameinfo(&SocketAddr::new(ip, 0), libc::NI_NAMEREQD).ok()?;
    leads_to(&name, ip).then_some(name)
}

fn leads_to(name: &str, ip: IpAddr) -> bool {
    ask_system(name).is_ok_and(|found| found.iter().any(|found| found.to_canonical() == ip))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_the_name_that_leads_back_to_it() {
        let own = IpAddr::from([127, 0, 0, 1]);
        let name = name_of(own).unwrap();
        assert!(leads_to(&name, own), "{name}");
        assert!(!leads_to(&name, [192, 0, 2, 1].into()), "of documentation (RFC 5737), and nobody's");
    }
}
