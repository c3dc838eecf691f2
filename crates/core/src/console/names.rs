//! Rows of SHOW DNS_HOSTS and DNS_ZONES.

use std::net::IpAddr;

use super::report::Cell;
use crate::contract::{Host, Zone};

pub(super) fn zones(zones: &[Zone]) -> Vec<Vec<Cell>> {
    let row = |zone: &Zone| {
        let serial = zone.serial.map_or(Cell::Null, |serial| u64::from(serial).into());
        vec![(&*zone.name).into(), serial, zone.hosts.into()]
    };
    zones.iter().map(row).collect()
}

pub(super) fn hosts(hosts: &[Host]) -> Vec<Vec<Cell>> {
    let row = |host: &Host| {
        let addresses: Vec<_> = host.addresses.iter().map(IpAddr::to_string).collect();
        vec![(&*host.name).into(), host.ttl.as_secs().into(), addresses.join(",").into()]
    };
    hosts.iter().map(row).collect()
}
