//! Several processes, of which each may get the cancel requests of all.

use std::io::Read;

use weir_wire::backend::ErrorFields;
use weir_wire::{BackendTag, ProtocolVersion, write};

use super::bench::{DRIVERS, Raw, Weir, shared, wait_until};

/// A session, and what it is cancelled with.
struct Session {
    raw: Raw,
    process_id: u32,
    key: Vec<u8>,
}

impl Session {
    fn begin(weir: &Weir, version: ProtocolVersion) -> Self {
        let mut raw = weir.raw();
        raw.send(|out| write::startup(out, version, &[("user", "postgres"), ("database", "postgres")]));
        let mut told = Vec::new();
        loop {
            let (tag, body) = raw.message().unwrap();
            match BackendTag::from_byte(tag) {
                Some(BackendTag::BackendKeyData) => told = body,
                Some(BackendTag::ReadyForQuery) => break,
                _ => {}
            }
        }
        let (process_id, key) = told.split_first_chunk().unwrap();
        Self { raw, process_id: u32::from_be_bytes(*process_id), key: key.to_vec() }
    }

    /// Asks that process to cancel it, until that has closed the connection.
    fn cancel_at(&self, weir: &Weir) {
        let mut raw = weir.raw();
        raw.send(|out| write::cancel_request(out, self.process_id, &self.key));
        assert_eq!(raw.0.read(&mut [0]).unwrap(), 0);
    }
}

/// Three processes, as behind a load balancer that knows nothing of sessions.
#[test]
fn a_cancel_finds_the_process_that_its_query_runs_in() {
    let mut direct = postgres::Client::connect(
        &format!("host=127.0.0.1 port={} user=postgres password=postgres dbname=postgres", shared()),
        postgres::NoTls,
    )
    .unwrap();
    for driver in DRIVERS {
        let weirs =
            [1, 2, 3].map(|id| Weir::start(shared(), &format!("driver = {driver}\nworkers = 2\npeer_id = {id}")));
        let list = |(id, weir): (usize, &Weir)| format!("{} = host=127.0.0.1 port={}\n", id + 1, weir.port);
        let peers: String = weirs.iter().enumerate().map(list).collect();
        weirs.iter().for_each(|weir| weir.reload_with(&format!("[peers]\n{peers}")));
        for version in [ProtocolVersion::V3_0, ProtocolVersion::V3_2] {
            let mut sessions = [0, 1, 2].map(|of| Session::begin(&weirs[of], version));
            for (of, at) in (0..3).flat_map(|of| (0..3).map(move |at| (of, at))) {
                for (number, session) in sessions.iter_mut().enumerate() {
                    let seconds = if number == of { "60" } else { "0.3" };
                    session.raw.send(|out| {
                        write::query(out, format!("select pg_sleep({seconds}) as peers_{driver}").as_bytes())
                    });
                }
                let running = format!(
                    "select 1 from pg_stat_activity where state = 'active' and query = 'select pg_sleep(60) as peers_{driver}'"
                );
                wait_until("the query runs", || !direct.query(&running, &[]).unwrap().is_empty());
                sessions[of].cancel_at(&weirs[at]);
                for (number, session) in sessions.iter_mut().enumerate() {
                    let messages = session.raw.read_until(BackendTag::ReadyForQuery);
                    let error = messages.iter().find(|(tag, _)| *tag == BackendTag::ErrorResponse as u8);
                    let code = error.map(|(_, body)| ErrorFields::parse(body).unwrap().code.to_vec());
                    let cancelled = (number == of).then(|| b"57014".to_vec());
                    assert_eq!(code, cancelled, "{driver}: the query of {of}, cancelled at {at}, seen by {number}");
                }
            }
        }
    }
}
