//! What a client leaves in a session is its own (`session_state = keep`), beside sessions each with a server of its own.

use super::bench::{Place, Weir, shared, wait_until};
use super::parameters::{beside, client, said};

const KEEP: &str = "session_state = keep";
/// One server more than clients that pin one, so that nobody waits.
const KEEP_OF_TWO: &str = "session_state = keep\ndefault_pool_size = 2";

const SHOW: &str = "select current_setting('work_mem'), current_setting('search_path'), current_setting('role'), \
    nullif(current_setting('app.tenant', true), ''), current_setting('default_transaction_isolation')";
/// Everything that a look is for, as a client sees it.
const HELD: &str = "select (select count(*) from pg_class where relnamespace = pg_my_temp_schema()), \
    (select count(*) from pg_locks where locktype = 'advisory' and pid = pg_backend_pid()), \
    (select count(*) from pg_listening_channels()), (select count(*) from pg_cursors where is_holdable), \
    (select count(*) from pg_prepared_statements where from_sql)";

#[test]
fn parameters_go_with_their_client() {
    on::parameters_go_with_their_client(shared());
}

#[test]
fn what_cannot_follow_keeps_its_server() {
    on::what_cannot_follow_keeps_its_server(shared());
}

/// The pool of one is free for the other client as soon as nothing is left.
#[test]
fn a_server_is_kept_no_longer_than_what_it_holds() {
    on::a_server_is_kept_no_longer_than_what_it_holds(shared());
}

/// Whoever comes next has nothing of a client that has gone.
#[test]
fn who_leaves_leaves_nothing() {
    on::who_leaves_leaves_nothing(shared());
}

/// Over all workers, and also where they come at once.
#[test]
fn no_more_servers_are_kept_than_may_be() {
    const KEPT_MAX: usize = 3;
    let lines = format!("{KEEP}\nworkers = 3\ndefault_pool_size = 12\nmax_pinned_per_pool = {KEPT_MAX}");
    let weir = Weir::start(shared(), &lines);
    let mut console = weir.try_client("dbname=pgbouncer").unwrap();
    for _ in 0..3 {
        let port = weir.port;
        let holders: Vec<_> = (0..12)
            .map(|number| {
                std::thread::spawn(move || {
                    let mut holder = client(port, "");
                    said(&mut holder, &format!("select pg_advisory_lock({number})"));
                    holder
                })
            })
            .collect();
        let mut holders: Vec<_> = holders.into_iter().map(|holder| holder.join().unwrap()).collect();
        wait_until("no more are kept than may be", || said(&mut console, "show pins").len() == KEPT_MAX);
        holders.retain_mut(|holder| holder.simple_query("select 1").is_ok());
        assert_eq!(holders.len(), KEPT_MAX);
        drop(holders);
        wait_until("none is kept", || said(&mut console, "show pins").is_empty());
    }
    let stats = said(&mut console, "show stats");
    let counted: Vec<_> = stats.iter().map(|row| row.rsplit('|').collect::<Vec<_>>()[4]).collect();
    assert!(counted.contains(&"36"), "advisory locks that kept a server: {stats:?}");
}

/// What was prepared under a parameter that has been taken back since is not executed under it.
#[test]
fn what_was_reset_is_not_there_for_what_was_prepared_before() {
    let weir = Weir::start(shared(), &format!("{KEEP}\nworkers = 1\ndefault_pool_size = 1"));
    let mut client = client(weir.port, "");
    client.batch_execute("set app.mark = 'mine'").unwrap();
    let mark = client.prepare("select nullif(current_setting('app.mark', true), '')").unwrap();
    let value: Option<String> = client.query_one(&mark, &[]).unwrap().get(0);
    assert_eq!(value.as_deref(), Some("mine"));
    client.batch_execute("reset app.mark").unwrap();
    // Another server, which prepares it anew.
    let mut console = weir.try_client("dbname=pgbouncer").unwrap();
    console.simple_query("reconnect").unwrap();
    let value: Option<String> = client.query_one(&mark, &[]).unwrap().get(0);
    assert_eq!(value, None);
}

/// Also where it is a function that asks.
#[test]
fn no_function_tells_what_nextval_gave_to_others() {
    let mut direct = client(shared(), "");
    direct
        .batch_execute(
            "drop function if exists newest(); drop sequence if exists own_sequence; create sequence own_sequence; \
             create function newest() returns bigint language plpgsql as $$begin return currval('own_sequence'); end$$",
        )
        .unwrap();
    let weir = Weir::start(shared(), &format!("{KEEP}\nworkers = 1\ndefault_pool_size = 1"));
    let [mut one, mut two] = [(); 2].map(|()| client(weir.port, ""));
    let newest = two.prepare("select newest()");
    said(&mut one, "select nextval('own_sequence')");
    assert_eq!(said(&mut two, "select newest()"), ["55000"]);
    let weir = Weir::start(shared(), &format!("{KEEP}\nworkers = 1\ndefault_pool_size = 1"));
    let [mut escapes, mut gives] = [(); 2].map(|()| client(weir.port, ""));
    said(&mut gives, "select nextval('own_sequence')");
    assert_eq!(said(&mut escapes, "select u&\"lastv\\0061l\"()"), ["55000"], "a name in escapes");
    for client in [&mut one, &mut two] {
        client.batch_execute("begin").unwrap();
        let given = said(client, "select nextval('own_sequence')");
        assert_eq!(said(client, "select newest()"), given);
        client.batch_execute("commit").unwrap();
    }
    assert_eq!(said(&mut one, "select 1"), ["1"]);
    let failed = two.query(&newest.unwrap(), &[]).unwrap_err();
    assert_eq!(failed.code().map(postgres::error::SqlState::code), Some("55000"));
    direct.batch_execute("drop function newest(); drop sequence own_sequence").unwrap();
}

/// What a session's sequences gave is its own, or nobody's.
#[test]
fn nobody_is_told_what_nextval_gave_to_others() {
    let mut direct = client(shared(), "");
    direct.batch_execute("drop sequence if exists kept_sequence; create sequence kept_sequence").unwrap();
    for (first, other) in [("lastval()", "currval('kept_sequence')"), ("currval('kept_sequence')", "lastval()")] {
        let weir = Weir::start(shared(), &format!("{KEEP}\nworkers = 1\ndefault_pool_size = 1"));
        let [mut one, mut two] = [(); 2].map(|()| client(weir.port, ""));
        said(&mut one, "select nextval('kept_sequence')");
        two.batch_execute("begin; select 1").unwrap();
        // Nobody has asked before: what the server has may be of anybody.
        assert_eq!(said(&mut two, &format!("select {first}")), ["0A000"]);
        two.batch_execute("rollback").unwrap();
        for client in [&mut two, &mut one] {
            assert_eq!(said(client, &format!("select {other}")), ["55000"]);
            client.batch_execute("begin").unwrap();
            let given = said(client, "select nextval('kept_sequence')");
            assert_eq!(said(client, &format!("select {first}")), given);
            let row = client.query_one(&format!("select {other}"), &[]).unwrap();
            assert_eq!(vec![row.get::<_, i64>(0).to_string()], given);
            client.batch_execute("commit").unwrap();
            // As long as nobody else has its server.
            assert_eq!(said(client, &format!("select {other}")), given);
        }
    }
    direct.batch_execute("drop sequence kept_sequence").unwrap();
}

#[test]
fn what_says_that_it_leaves_something_is_refused() {
    let weir = Weir::start(shared(), "session_state = refuse\ndefault_pool_size = 1\nmax_prepared_statements = 20");
    let mut held = client(weir.port, "options='-c work_mem=9MB'");
    let code = |error: &postgres::Error| error.code().map(|code| code.code().to_owned());
    for refused in [
        "set work_mem = '1MB'",
        "set role pg_monitor",
        "select set_config('app.tenant', 'a', false)",
        "create temp table kept (a int)",
        "select pg_advisory_lock(1)",
        "listen kept",
        "declare kept cursor with hold for select 1",
        "prepare kept as select 5",
        "load 'plpgsql'",
        "select setseed(0)",
    ] {
        let error = held.batch_execute(refused).unwrap_err();
        assert_eq!(code(&error).as_deref(), Some("0A000"), "{refused}: {error:?}");
        let error = held.prepare(refused).unwrap_err();
        assert_eq!(code(&error).as_deref(), Some("0A000"), "{refused}: {error:?}");
        held.batch_execute("begin").unwrap();
        held.batch_execute(refused).unwrap_err();
        let error = held.batch_execute("select 1").unwrap_err();
        assert_eq!(code(&error).as_deref(), Some("25P02"), "{refused}: {error:?}");
        held.batch_execute("rollback").unwrap();
    }
    let work_mem = "select current_setting('work_mem')";
    for carried_out in [
        "begin; set local work_mem = '1MB'; select set_config('app.tenant', 'a', true); commit",
        "select 1 as temp",
        "select pg_advisory_xact_lock(1)",
        "set timezone = 'Asia/Tokyo'",
        "begin; create table never (a int); rollback",
        "do $$begin perform set_config('work_mem', '2MB', true); end$$",
    ] {
        held.batch_execute(carried_out).unwrap();
        assert_eq!(said(&mut held, work_mem), ["9MB"], "{carried_out}");
    }
    for (left, text) in [
        ("temporary objects", "do $$begin create temp table kept (a int); end$$"),
        ("parameters", "do $$begin perform set_config('enable_sort', 'off', false); end$$"),
        ("advisory locks", "do $$begin perform pg_advisory_lock(1); end$$"),
    ] {
        let mut leaves = client(weir.port, "");
        // It may come before the client has read its answer.
        let error = leaves.batch_execute(text).and_then(|()| leaves.batch_execute("select 1")).unwrap_err();
        let told = error.as_db_error().map(|error| error.message().to_owned()).unwrap_or_default();
        assert!(error.is_closed() || told.ends_with(left), "{text}: {error:?}");
        assert_eq!(said(&mut held, HELD), ["0|0|0|0|0"], "{text}");
        assert_eq!(said(&mut held, "show enable_sort"), ["on"]);
    }
}

#[test]
fn pins_are_shown() {
    let weir = Weir::start(shared(), KEEP);
    let mut console = weir.try_client("dbname=pgbouncer").unwrap();
    assert_eq!(said(&mut console, "show pins"), Vec::<String>::new());
    let mut holder = client(weir.port, "");
    said(&mut holder, "create temp table kept (a int); select pg_advisory_lock(1)");
    // Its next request waits until it is known what it has left.
    said(&mut holder, "select 1");
    let pins = said(&mut console, "show pins");
    assert_eq!(pins.len(), 1, "{pins:?}");
    assert!(pins[0].contains("|temporary objects, advisory locks|"), "{pins:?}");
    assert!(pins[0].ends_with("create temp table kept (a int); select pg_advisory_lock(1)"), "{pins:?}");
    said(&mut holder, "drop table kept");
    said(&mut holder, "select 1");
    let pins = said(&mut console, "show pins");
    assert!(pins[0].contains("|advisory locks|"), "{pins:?}");
    said(&mut holder, "select pg_advisory_unlock(1)");
    said(&mut holder, "select 1");
    assert_eq!(said(&mut console, "show pins"), Vec::<String>::new());
}

/// What no text says: in functions, procedures, triggers, views, rules, defaults, domains, and what those call.
const HIDDEN: &str = "
create schema hidden;
create function hidden.deep() returns int language plpgsql as $$begin perform set_config('work_mem', '7MB', false); return 1; end$$;
create function hidden.locks() returns int language sql as $$select 1 from (select pg_advisory_lock(9)) l$$;
create function hidden.standard() returns int language sql begin atomic select hidden.deep(); end;
create function hidden.named() returns int language plpgsql as $$begin set app.tenant = 'f'; return 1; end$$;
create function hidden.dynamic(what text) returns int language plpgsql as $$begin execute what; return 1; end$$;
create procedure hidden.proc() language plpgsql as $$begin create temp table kept (a int); end$$;
create function hidden.trigger() returns trigger language plpgsql as $$begin perform hidden.locks(); return coalesce(new, old); end$$;
create table hidden.triggered (a int);
create trigger t before insert on hidden.triggered for each row execute function hidden.trigger();
create table hidden.parent (id int primary key); insert into hidden.parent values (1);
create table hidden.child (id int references hidden.parent on delete cascade); insert into hidden.child values (1);
create trigger t before delete on hidden.child for each row execute function hidden.trigger();
create table hidden.part (a int) partition by list (a);
create table hidden.part_one partition of hidden.part for values in (1);
create trigger t before insert on hidden.part_one for each row execute function hidden.trigger();
create view hidden.seen as select hidden.deep() as a;
create view hidden.seen_again as select * from hidden.seen;
create table hidden.ruled (a int); create rule r as on insert to hidden.ruled do also select hidden.locks();
create table hidden.defaulted (a int default hidden.locks(), b int);
create table hidden.checked (a int check (hidden.locks() = a));
create domain hidden.positive as int check (hidden.locks() <= value);
create table hidden.of_domain (a hidden.positive);
create function hidden.adds(int, int) returns int language sql as $$select $1 + $2 + hidden.deep()$$;
create aggregate hidden.sums(int) (sfunc = hidden.adds, stype = int, initcond = '0');
create function hidden.\"a\"\"b\"() returns int language sql as $$select hidden.deep()$$;
create function hidden.name_of_63_bytes_456789_123456789_123456789_123456789_123456789_() returns int language sql as $$select hidden.deep()$$;
create domain hidden.over as hidden.positive;
create table hidden.of_over (a hidden.over);
create type hidden.pair as (a hidden.positive);
create table hidden.of_pair (a hidden.pair);
create table hidden.of_array (a hidden.positive[]);
create domain hidden.by_default as int default hidden.locks();
create table hidden.of_default (a int, b hidden.by_default);
create function hidden.key(int) returns int language plpgsql immutable as $$begin perform pg_advisory_lock(9); return $1; end$$;
create table hidden.by_key (a int) partition by range (hidden.key(a));
create table hidden.by_key_one partition of hidden.by_key for values from (0) to (9);
";

#[test]
fn what_code_leaves_is_its_clients() {
    on::what_code_leaves_is_its_clients(shared());
}

/// Nobody waits for a lock that a client has on a table, to learn what is behind its names.
#[test]
fn code_is_read_whatever_is_locked() {
    let mut direct = client(shared(), "");
    direct
        .batch_execute(
            "drop schema if exists locked cascade; create schema locked; create table locked.t (a int default 1 + 1 check (a > 0)); \
             create index on locked.t ((a + 1)); create view locked.v as select * from locked.t",
        )
        .unwrap();
    direct.batch_execute("begin; lock table locked.t, locked.v").unwrap();
    let weir = Weir::start(shared(), KEEP);
    let mut reader = client(weir.port, "");
    assert_eq!(said(&mut reader, "select 1"), ["1"]);
    let mut console = weir.try_client("dbname=pgbouncer").unwrap();
    assert_eq!(said(&mut console, "show pins"), Vec::<String>::new());
    direct.batch_execute("rollback; drop schema locked cascade").unwrap();
}

/// What a RESET leaves of a name is no value: a server where the name has a definition would not take it.
#[test]
fn a_name_that_was_reset_is_nobodys_value() {
    on::a_name_that_was_reset_is_nobodys_value(shared());
}

#[test]
fn a_value_that_was_taken_back_is_nobody_elses() {
    on::a_value_that_was_taken_back_is_nobody_elses(shared());
}

#[test]
fn what_code_in_texts_leaves_is_its_clients() {
    on::what_code_in_texts_leaves_is_its_clients(shared());
}

/// Code that a client makes counts at once.
#[test]
fn new_code_is_known() {
    on::new_code_is_known(shared());
}

/// What holds on any server, whether it tells what a session holds or is asked.
pub mod on {
    use super::*;

    pub fn parameters_go_with_their_client(server: u16) {
        for sets in [
            "set work_mem = '1MB'",
            "set search_path = pg_catalog",
            "set role pg_monitor",
            "set session characteristics as transaction isolation level serializable",
            "set app.tenant = 'a'",
            "select set_config('app.tenant', 'b', false)",
            "select set_config('work_mem', '2' || 'MB', false)",
            "begin; set work_mem = '3MB'; commit",
            "begin; set work_mem = '3MB'; rollback",
            "begin; set local work_mem = '3MB'; select set_config('app.tenant', 'c', true); commit",
            "begin; set work_mem = '3MB'; savepoint a; set work_mem = '4MB'; rollback to a; commit",
            "set work_mem = '3MB'; select 1 / 0",
            "do $$begin set work_mem = '5MB'; perform set_config('app.tenant', 'd', false); end$$",
            "explain (analyze, costs off, timing off, summary off) select set_config('work_mem', '6MB', false)",
        ] {
            for undo in ["select 1", "reset work_mem", "reset all", "discard all", "set role none; reset search_path"] {
                let steps = [(0, SHOW), (0, sets), (1, SHOW), (0, SHOW), (1, SHOW), (0, undo), (1, SHOW), (0, SHOW)];
                beside(server, KEEP, ["", ""], &steps);
            }
            let startup = "options='-c work_mem=9MB -c app.tenant=z'";
            beside(
                server,
                KEEP,
                [startup, ""],
                &[(0, SHOW), (0, sets), (1, SHOW), (0, SHOW), (0, "reset all"), (1, SHOW), (0, SHOW)],
            );
        }
    }

    pub fn what_cannot_follow_keeps_its_server(server: u16) {
        for (makes, uses, ends) in [
            ("create temp table kept (a int)", "insert into kept values (1) returning a", "drop table kept"),
            ("begin; create temp table kept (a int) on commit drop; commit", "select * from kept", "select 1"),
            ("begin; create temp table kept (a int); rollback", "select * from kept", "select 1"),
            ("select 1 as a into temp kept", "select * from kept", "discard temp"),
            ("create view pg_temp.kept as select 1 as a", "select * from pg_temp.kept", "drop view pg_temp.kept"),
            ("do $$begin create temp table kept as select 7 as a; end$$", "select * from kept", "discard all"),
            ("select pg_advisory_lock(1)", "select pg_advisory_lock(2)", "select pg_advisory_unlock_all()"),
            ("select pg_try_advisory_lock(3)", "select pg_advisory_unlock(3)", "select 1"),
            ("begin; select pg_advisory_lock(4); rollback", "select 1", "select pg_advisory_unlock(4)"),
            ("listen kept", "select * from pg_listening_channels()", "unlisten *"),
            ("begin; listen kept; rollback", "select * from pg_listening_channels()", "select 1"),
            ("begin; declare kept cursor with hold for values (1), (2); commit", "fetch 1 from kept", "close kept"),
            ("prepare kept as select 5", "execute kept", "deallocate kept"),
            ("prepare kept as select 5", "execute kept", "deallocate all"),
        ] {
            let steps = [
                (0, makes),
                (0, HELD),
                (1, HELD),
                (0, uses),
                (1, HELD),
                (0, HELD),
                (0, ends),
                (0, HELD),
                (1, HELD),
                (0, "select 1"),
            ];
            beside(server, KEEP_OF_TWO, ["", ""], &steps);
        }
    }

    pub fn a_server_is_kept_no_longer_than_what_it_holds(server: u16) {
        for (makes, ends) in [
            ("create temp table kept (a int)", "drop table kept"),
            ("select pg_advisory_lock(1)", "select pg_advisory_unlock(1)"),
            ("listen kept", "unlisten kept"),
            ("begin; declare kept cursor with hold for select 1; commit", "close kept"),
            ("prepare kept as select 5", "deallocate kept"),
            ("set session authorization pg_monitor", "reset session authorization"),
        ] {
            let steps = [(0, makes), (0, HELD), (0, ends), (1, HELD), (0, HELD)];
            beside(server, KEEP, ["", ""], &steps);
        }
    }

    pub fn who_leaves_leaves_nothing(server: u16) {
        let weir = Weir::start(server, &format!("{KEEP}\ndefault_pool_size = 1"));
        for leaves in [
            "create temp table kept (a int)",
            "select pg_advisory_lock(1)",
            "listen kept; set work_mem = '1MB'; set role pg_monitor",
            "begin; declare kept cursor with hold for select 1; commit",
            "prepare kept as select 5",
            "begin; set work_mem = '1MB'; create temp table kept (a int)",
            "set session authorization pg_monitor",
            "select setseed(0.5)",
        ] {
            let mut first = client(weir.port, "");
            said(&mut first, leaves);
            drop(first);
            let mut second = client(weir.port, "");
            let clean = said(&mut second, HELD);
            assert_eq!(clean, ["0|0|0|0|0"], "{leaves}");
            let mut direct = client(server, "");
            let show = "select current_setting('work_mem'), current_user, session_user";
            assert_eq!(said(&mut second, show), said(&mut direct, show), "{leaves}");
        }
    }

    pub fn what_code_leaves_is_its_clients(server: u16) {
        let place = Place::of_its_own(server, "hidden");
        place.client("").batch_execute(HIDDEN).unwrap();
        for calls in [
            "select hidden.deep()",
            "select hidden.standard()",
            "select hidden.named()",
            "select * from hidden.seen",
            "select * from hidden.seen_again",
            "select hidden.sums(a) from (values (1), (2)) v (a)",
            "select hidden.\"a\"\"b\"()",
            "select hidden.name_of_63_bytes_456789_123456789_123456789_123456789_123456789_and_more()",
        ] {
            beside(place, KEEP, ["", ""], &[(0, SHOW), (0, calls), (1, SHOW), (0, SHOW), (1, SHOW), (0, SHOW)]);
        }
        // SQL that is put together may be anything, and so may a parameter that is no name: its client keeps the server.
        for calls in [
            "update pg_settings set setting = '7168' where name = 'work_mem'",
            "select hidden.dynamic('set app.tenant = ''8''')",
            "select table_to_xml('hidden.seen', true, false, '')",
            "create or replace function hidden.puts(a text, b text) returns text language sql as $$select set_config(a, b, false)$$; \
             select hidden.puts('app.tenant', '9')",
        ] {
            beside(place, KEEP_OF_TWO, ["", ""], &[(0, SHOW), (0, calls), (1, SHOW), (0, SHOW), (1, SHOW), (0, SHOW)]);
        }
        for calls in [
            "select hidden.locks()",
            "call hidden.proc()",
            "select hidden.dynamic('listen a')",
            "insert into hidden.triggered values (1)",
            "begin; delete from hidden.parent; rollback",
            "insert into hidden.part values (1)",
            "insert into hidden.ruled values (1)",
            "insert into hidden.defaulted (b) values (1)",
            "insert into hidden.checked values (1)",
            "insert into hidden.of_domain values (1)",
            "select 1::hidden.positive",
            "insert into hidden.of_over values (1)",
            "insert into hidden.of_pair values ('(1)')",
            "insert into hidden.of_array values ('{1}')",
            "insert into hidden.of_default (a) values (1)",
            "insert into hidden.by_key values (1)",
            "set search_path = pg_temp, public; select 1 as a into kept; reset search_path",
        ] {
            let steps = [(0, calls), (0, HELD), (1, HELD), (0, HELD), (0, "discard all"), (1, HELD)];
            beside(place, KEEP_OF_TWO, ["", ""], &steps);
        }
    }

    pub fn new_code_is_known(server: u16) {
        let makes = "create or replace function public.fresh() returns int language plpgsql \
            as $$begin perform set_config('work_mem', '7MB', false); return 1; end$$";
        let harmless = makes.replace("perform set_config('work_mem', '7MB', false);", "");
        let call = "select public.fresh()";
        let steps =
            [(0, SHOW), (0, &*harmless), (1, call), (1, SHOW), (0, makes), (1, call), (1, SHOW), (0, SHOW), (1, SHOW)];
        beside(server, KEEP, ["", ""], &steps);
    }

    pub fn a_name_that_was_reset_is_nobodys_value(server: u16) {
        let loads = "do $$begin end$$";
        let steps = [
            (0, "set plpgsql.check_asserts = off; reset plpgsql.check_asserts"),
            (1, loads),
            (0, "select 1"),
            (1, "select 1"),
            (0, loads),
            (0, "show plpgsql.check_asserts"),
            (1, "select 1"),
            (0, "set app.blank = ''"),
            (1, "select nullif(current_setting('app.blank', true), '')"),
            (0, "select current_setting('app.blank')"),
        ];
        beside(server, KEEP_OF_TWO, ["", ""], &steps);
    }

    /// Whoever has taken a value back does not get the next client's, however that was done.
    pub fn a_value_that_was_taken_back_is_nobody_elses(server: u16) {
        let look = "select nullif(current_setting('app.back', true), '')";
        for back in [
            "reset all",
            "discard all",
            "reset app.back",
            "set app.back to default",
            "set app.back = ''",
            "select set_config('app.back', '', false)",
            "begin; reset all; commit",
            "begin; set app.back = 'C'; rollback; reset app.back",
        ] {
            let steps =
                [(0, "set app.back = 'A'"), (0, back), (1, "set app.back = 'B'"), (0, look), (1, look), (0, look)];
            beside(server, KEEP, ["", ""], &steps);
            beside(
                server,
                KEEP,
                ["", "options='-c app.back=B'"],
                &[steps[0], steps[1], (1, look), (0, look), (1, look)],
            );
        }
    }

    /// What a `DO` calls is found in the text that is its body, and what new code calls in that.
    pub fn what_code_in_texts_leaves_is_its_clients(server: u16) {
        let make = "create or replace function inner_set() returns void language plpgsql as $$begin set app.inner = 'A'; end$$; \
                    create or replace function inner_text() returns void language plpgsql as $$begin execute 'set app.'||'inner = 1'; end$$";
        let look = "select nullif(current_setting('app.inner', true), '')";
        for call in [
            "do $$begin perform inner_set(); end$$",
            "do $a$begin perform inner_text(); end$a$",
            "do 'begin perform inner_text(); end'",
            "do language plpgsql $$declare x text; begin execute 'select inner_text()'; end$$",
            "create or replace function inner_new() returns void language sql as $$select inner_text()$$; select inner_new()",
        ] {
            let steps =
                [(0, make), (1, "select 1"), (0, "select pg_sleep(1.2)"), (0, call), (1, look), (0, look), (1, look)];
            beside(server, KEEP_OF_TWO, ["", ""], &steps);
        }
    }
}
