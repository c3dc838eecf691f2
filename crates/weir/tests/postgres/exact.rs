//! A PostgreSQL that tells what its sessions hold (`extension/`).
//!
//! The module is compiled for these tests. That needs a C compiler and PostgreSQL's headers: `scripts/setup test` fetches those of Debian's
//! PostgreSQL 15 into `.cache`, and `PG_INCLUDE=folder` names others of that major release.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use postgres::Client;
use tempfile::TempDir;
use weir_pg::{Cluster, Installation, Options};
use weir_wire::{BackendTag, write};

use super::bench::{Weir, open_to_all, shared};
use super::by_sql;
use super::listen;
use super::parameters::{client, said};
use super::pipelines;
use super::state::on;

const MAJOR: u32 = 15;

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn headers() -> PathBuf {
    let named = std::env::var_os("PG_INCLUDE").map(PathBuf::from);
    let system = PathBuf::from("/usr/include/postgresql/15/server");
    let fetched = repository().join(".cache/postgresql-15/usr/include/postgresql/15/server");
    let found = named.into_iter().chain([system, fetched]).find(|folder| folder.join("postgres.h").exists());
    found.expect("This test needs PostgreSQL 15's headers: `scripts/setup test` fetches them, and PG_INCLUDE=folder names others.")
}

/// A PostgreSQL whose sessions have the module.
fn exact() -> u16 {
    static EXACT: OnceLock<Mutex<(Cluster, TempDir)>> = OnceLock::new();
    let start = || {
        let folder = tempfile::tempdir().unwrap();
        open_to_all(folder.path());
        let module = folder.path().join("weir.so");
        let mut compile = Command::new("cc");
        compile.args(["-shared", "-fPIC", "-O2", "-Wall", "-Werror", "-D_GNU_SOURCE", "-I"]).arg(headers());
        let files = std::fs::read_dir(repository().join("extension")).unwrap().map(|file| file.unwrap().path());
        compile.args(files.filter(|file| file.extension().is_some_and(|of| of == "c"))).arg("-o").arg(&module);
        assert!(compile.status().unwrap().success(), "{compile:?}");
        open_to_all(&module);
        let installation = Installation::of_major(MAJOR, &|_| {}).unwrap();
        let preload = format!("session_preload_libraries = '{}'", module.display());
        let settings = vec!["max_connections = 100".to_owned(), "fsync = off".to_owned(), preload];
        let hba = vec!["host all all 127.0.0.1/32 trust".to_owned()];
        let cluster = Cluster::start(&installation, Options { settings, hba, ..Options::default() }).unwrap();
        Mutex::new((cluster, folder))
    };
    EXACT.get_or_init(start).lock().unwrap().0.port()
}

/// These make the same tables.
fn tables() -> MutexGuard<'static, ()> {
    static TABLES: Mutex<()> = Mutex::new(());
    TABLES.lock().unwrap_or_else(PoisonError::into_inner)
}

#[test]
fn parameters_go_with_their_client() {
    on::parameters_go_with_their_client(exact());
}

#[test]
fn what_is_parsed_behind_a_set_means_the_same_later() {
    let _tables = tables();
    pipelines::means_the_same_later(exact());
}

#[test]
fn what_a_function_sets_stays_set() {
    let _tables = tables();
    pipelines::functions::stays_set(exact());
}

#[test]
fn what_a_function_sets_is_nobody_elses() {
    let _tables = tables();
    pipelines::functions::is_nobody_elses(exact());
}

#[test]
fn what_is_set_as_it_is_parsed_is_nobody_elses() {
    let _tables = tables();
    pipelines::functions::is_set_as_it_is_parsed(exact());
}

#[test]
fn what_cannot_follow_keeps_its_server() {
    on::what_cannot_follow_keeps_its_server(exact());
}

#[test]
fn a_server_is_kept_no_longer_than_what_it_holds() {
    on::a_server_is_kept_no_longer_than_what_it_holds(exact());
}

#[test]
fn who_leaves_leaves_nothing() {
    on::who_leaves_leaves_nothing(exact());
}

#[test]
fn what_the_protocol_has_prepared_is_there_for_sql() {
    by_sql::on::what_the_protocol_has_prepared_is_there_for_sql(exact());
}

#[test]
fn nobody_sees_what_others_have_prepared() {
    by_sql::on::nobody_sees_what_others_have_prepared(exact());
}

#[test]
fn it_is_prepared_as_it_was() {
    by_sql::on::it_is_prepared_as_it_was(exact());
}

#[test]
fn all_are_as_they_were_or_none() {
    by_sql::on::all_are_as_they_were_or_none(exact());
}

#[test]
fn what_code_leaves_is_its_clients() {
    on::what_code_leaves_is_its_clients(exact());
}

#[test]
fn new_code_is_known() {
    on::new_code_is_known(exact());
}

#[test]
fn a_name_that_was_reset_is_nobodys_value() {
    on::a_name_that_was_reset_is_nobodys_value(exact());
}

#[test]
fn a_value_that_was_taken_back_is_nobody_elses() {
    on::a_value_that_was_taken_back_is_nobody_elses(exact());
}

#[test]
fn what_code_in_texts_leaves_is_its_clients() {
    on::what_code_in_texts_leaves_is_its_clients(exact());
}

/// What no text tells: code that was made past Weir, a moment ago.
#[test]
fn what_nobody_can_read_is_its_clients() {
    let weir = Weir::start(exact(), "session_state = keep\ndefault_pool_size = 2");
    let (mut holder, mut other) = (client(weir.port, ""), client(weir.port, ""));
    said(&mut holder, "select 1");
    let mut direct = client(exact(), "");
    direct
        .batch_execute(
            "create or replace function unread(a text) returns text language plpgsql as \
             $$begin execute 'set app.' || a || ' = 7'; perform pg_advisory_lock(3); return a; end$$",
        )
        .unwrap();
    assert_eq!(said(&mut holder, "select unread('tenant')"), ["tenant"]);
    let look = "select coalesce(current_setting('app.tenant', true), ''), count(*) from pg_locks where locktype = 'advisory' \
        and pid = pg_backend_pid()";
    assert_eq!(said(&mut other, look), ["|0"]);
    assert_eq!(said(&mut holder, look), ["7|1"]);
    // The value follows, and the server is free, as soon as the lock is gone.
    assert_eq!(said(&mut holder, "select pg_advisory_unlock(3)"), ["t"]);
    let mut console = weir.try_client("dbname=pgbouncer").unwrap();
    assert_eq!(said(&mut console, "show pins"), Vec::<String>::new());
    assert_eq!((said(&mut other, look), said(&mut holder, look)), (vec!["|0".to_owned()], vec!["7|0".to_owned()]));
}

#[test]
fn a_name_is_given_once() {
    by_sql::on::a_name_is_given_once(exact());
}

/// What is told of a function does not depend on what it is called.
#[test]
fn a_function_by_another_name_is_the_same() {
    let mut direct = client(exact(), "");
    direct
        .batch_execute(
            "create or replace function sets_by_another_name(text, text, bool) returns text language internal as 'set_config_by_name'; \
             create or replace function seeds_by_another_name(float8) returns void language internal as 'setseed'",
        )
        .unwrap();
    said(&mut direct, "select setseed(0.42)");
    let seeded = said(&mut direct, "select random()").remove(0);
    for text in ["select seeds_by_another_name(0.42)", "select sets_by_another_name('app.k', 'left', false)"] {
        let weir = Weir::start(exact(), "session_state = keep\ndefault_pool_size = 1");
        let mut one = client(weir.port, "");
        one.simple_query(text).unwrap();
        weir.reload_with("query_wait_timeout = 1");
        let shown = said(&mut client(weir.port, ""), "select random(), current_setting('app.k', true)").remove(0);
        assert!(!shown.contains(&seeded) && !shown.contains("left"), "{text}: {shown}");
    }
}

/// It goes on with its server.
#[test]
fn who_sets_what_is_too_long_to_be_told_keeps_its_server() {
    let weir = Weir::start(exact(), "session_state = keep\ndefault_pool_size = 2");
    let (mut one, mut other) = (client(weir.port, ""), client(weir.port, ""));
    one.batch_execute(&format!("set app.long = '{}'", "x".repeat(70_000))).unwrap();
    let length = "select coalesce(length(current_setting('app.long', true)), 0)";
    assert_eq!((said(&mut other, length), said(&mut one, length)), (vec!["0".to_owned()], vec!["70000".to_owned()]));
}

/// Who does not ask to be told is told nothing.
#[test]
fn only_weir_is_told() {
    let mut direct = client(exact(), "");
    let mut plain = client(shared(), "");
    let names = "select count(*) from pg_settings where name = 'weir.report'";
    assert_eq!(said(&mut direct, names), said(&mut plain, names));
    assert_eq!(said(&mut direct, "set work_mem = '1MB'; show work_mem"), ["1MB"]);
}

#[test]
fn many_listen_through_one_server() {
    listen::on::many_listen_through_one_server(exact());
}

#[test]
fn nothing_is_told_twice_and_nothing_is_lost() {
    listen::on::nothing_is_told_twice_and_nothing_is_lost(exact());
}

#[test]
fn who_unlistens_hears_no_more() {
    listen::on::who_unlistens_hears_no_more(exact());
}

#[test]
fn what_is_unlistened_in_a_transaction_counts_with_its_end() {
    listen::on::what_is_unlistened_in_a_transaction_counts_with_its_end(exact());
}

#[test]
fn what_ends_listening_is_never_lost() {
    listen::on::what_ends_listening_is_never_lost(exact());
}

#[test]
fn nothing_that_comes_during_a_handover_is_lost() {
    listen::on::nothing_that_comes_during_a_handover_is_lost(exact());
}

#[test]
fn what_was_unlistened_behind_a_lost_mark_is_left_or_refused() {
    listen::on::what_was_unlistened_behind_a_lost_mark_is_left_or_refused(exact());
}

#[test]
fn what_was_kept_is_told_as_its_client_reads_it_then() {
    listen::on::what_was_kept_is_told_as_its_client_reads_it_then(exact());
}

#[test]
fn who_loses_the_server_that_listened_is_told() {
    listen::on::who_loses_the_server_that_listened_is_told(exact());
}

/// An UNLISTEN in code counts, whatever is behind it in its transaction; the list of channels is told where a query says so itself, and else its session
/// is ended, where its own server does not have them.
#[test]
fn what_code_does_with_channels_counts() {
    let weir = Weir::start(exact(), "session_state = keep\nworkers = 1\ndefault_pool_size = 3");
    let mut direct = client(exact(), "");
    let code = "create or replace function code(text) returns int language plpgsql as $$begin execute $1; return 1; end$$; \
                create or replace view code_listens as select * from pg_listening_channels() as own (name)";
    direct.batch_execute(code).unwrap();
    let mut listener = client(weir.port, "");
    let channels = |listener: &mut Client| said(listener, "select pg_listening_channels() order by 1");
    for (text, left) in [
        ("select code('unlisten code_a')", &["code_b", "code_c"][..]),
        (
            "begin; savepoint s; select code('unlisten code_a'); rollback to s; select code('unlisten code_b'); commit",
            &["code_a", "code_c"],
        ),
        ("begin; select code('unlisten *'); reset all; select code('listen code_b'); commit", &["code_b"]),
        ("do $$begin unlisten *; end$$", &[]),
        ("discard all", &[]),
    ] {
        listener.batch_execute("listen code_a; listen code_b; listen code_c").unwrap();
        listen::wait_until_handed_over(&weir);
        listener.batch_execute(text).unwrap();
        assert_eq!(channels(&mut listener), left, "{text}");
        listener.batch_execute("unlisten *").unwrap();
    }
    let mut raw = weir.raw();
    raw.log_in();
    raw.send(|out| write::query(out, b"listen code_a"));
    raw.read_until(BackendTag::ReadyForQuery);
    listen::wait_until_handed_over(&weir);
    raw.send(|out| write::query(out, b"select name from code_listens"));
    assert_eq!(raw.last_error(), "0A000");
    assert_eq!(said(&mut listener, "select count(*) from code_listens"), ["0"]);
}
