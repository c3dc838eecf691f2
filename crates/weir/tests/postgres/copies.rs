//! Copies that fail, with messages sent ahead of their end: each client gets the replies to what it sent, and nobody else does.

use weir_wire::{BackendTag, write};

use super::bench::{DRIVERS, Raw, Weir, shared};

/// An unnamed statement, bound and executed.
fn execute(out: &mut Vec<u8>, sql: &str) {
    write::parse(out, b"", &[sql.as_bytes(), b"\0\0\0"].concat());
    write::bind_names(out, b"", b"", 6);
    out.extend_from_slice(&[0; 6]);
    out.extend_from_slice(b"E\0\0\0\x09\0\0\0\0\0");
}

fn copy_data(out: &mut Vec<u8>, data: &[u8]) {
    out.push(b'd');
    out.extend_from_slice(&(data.len() as u32 + 4).to_be_bytes());
    out.extend_from_slice(data);
}

const COPY_DONE: &[u8] = b"c\0\0\0\x04";

/// Sends what `write` appends, and reads up to so many ReadyForQuery; the tags of all that came.
fn tags(raw: &mut Raw, ready: usize, write: impl FnOnce(&mut Vec<u8>)) -> String {
    raw.send(write);
    let messages = (0..ready).flat_map(|_| raw.read_until(BackendTag::ReadyForQuery));
    messages.map(|(tag, _)| char::from(tag)).collect()
}

#[test]
fn what_was_sent_ahead_of_a_failed_copy_is_answered_to_its_sender_only() {
    for driver in DRIVERS {
        let weir = Weir::start(shared(), &format!("driver = {driver}\ndefault_pool_size = 1"));
        let setup = "create table if not exists copied (number int); create or replace view seen as select 1 as one";
        weir.client().batch_execute(setup).unwrap();
        let mut copier = weir.raw();
        copier.log_in();
        let mut other = weir.raw();
        other.log_in();
        for round in 0..20 {
            // A view: PostgreSQL asks for data, fails without reading any, and answers the Sync behind.
            let told = tags(&mut copier, 2, |out| {
                write::query(out, b"copy seen from stdin");
                write::sync(out);
            });
            assert_eq!(told, "GEZZ");
            let told = tags(&mut copier, 2, |out| {
                execute(out, "copy seen from stdin");
                write::sync(out);
                out.extend_from_slice(COPY_DONE);
                write::sync(out);
            });
            assert_eq!(told, "12GEZZ");
            // A table: it reads the Sync in the copy and ignores it.
            let told = tags(&mut copier, 1, |out| {
                execute(out, "copy copied from stdin");
                write::sync(out);
                copy_data(out, b"no number\n");
                out.extend_from_slice(COPY_DONE);
                write::sync(out);
            });
            assert_eq!(told, "12GEZ");
            let told = tags(&mut copier, 1, |out| {
                execute(out, "copy copied from stdin");
                write::sync(out);
                copy_data(out, b"7\n");
                out.extend_from_slice(COPY_DONE);
                write::sync(out);
            });
            assert_eq!(told, "12GCZ");
            other.send(|out| write::query(out, format!("select 'round {round}'").as_bytes()));
            let messages = other.read_until(BackendTag::ReadyForQuery);
            let own = format!("round {round}");
            assert!(messages.iter().any(|(_, body)| body.ends_with(own.as_bytes())), "{messages:?}");
        }
    }
}

#[test]
fn a_client_cut_off_in_the_middle_of_a_copy_leaves_nothing_behind() {
    for driver in DRIVERS {
        let weir = Weir::start(shared(), &format!("driver = {driver}\ndefault_pool_size = 1"));
        weir.client().batch_execute("create table if not exists cut (line text); truncate cut").unwrap();
        for within in [false, true] {
            let mut copier = weir.raw();
            copier.log_in();
            copier.send(|out| write::query(out, b"copy cut from stdin"));
            copier.read_until(BackendTag::CopyInResponse);
            copier.send(|out| {
                copy_data(out, b"whole\n");
                if within {
                    // The header of a message and a part of its body.
                    out.extend_from_slice(b"d\0\0\x03\xe8half");
                }
            });
            drop(copier);
            let rows = weir.client().query_one("select count(*) from cut", &[]).unwrap();
            assert_eq!(rows.get::<_, i64>(0), 0, "{driver}, within a message: {within}");
        }
    }
}
