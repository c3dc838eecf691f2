//! Clients that stay while their pool's servers become another release of PostgreSQL, which reports other parameters: 18 the `search_path`, older ones
//! not; 16 and newer `scram_iterations`.

use super::bench::{Weir, trusting_cluster};
use super::parameters::said;

/// What each client has is its own, in both directions, however it set that and whenever it came.
#[test]
fn what_another_release_reports_is_nobody_elses() {
    let clusters = [18, 17, 15].map(trusting_cluster);
    let [newest, newer, old] = clusters.each_ref().map(|cluster| cluster.port());
    // From 16 or newer to older ones a client is told that it cannot be: those have no `scram_iterations`.
    let ways = [[newest, newer], [newer, newest], [old, newest], [old, newer]];
    for (mode, [from, to]) in ["keep", "refuse", "pgbouncer"].iter().flat_map(|mode| ways.map(|way| (mode, way))) {
        let case = format!("{mode}, {from} to {to} of {newest}, {newer} and {old}");
        let weir = Weir::start(
            from,
            &format!(
                "session_state = {mode}\nworkers = 1\ndefault_pool_size = 1\nignore_startup_parameters = extra_float_digits"
            ),
        );
        let mut innocent = weir.client();
        let mut packet = weir.try_client("dbname=postgres options='-c search_path=pg_catalog'").unwrap();
        let sets = *mode == "keep";
        let mut setter = weir.client();
        assert_eq!(said(&mut innocent, "show search_path"), ["\"$user\", public"], "{case}");
        if sets {
            said(&mut setter, "set search_path = information_schema");
        }
        weir.reload_with(&format!("[databases]\n* = host=127.0.0.1 port={to}"));
        let mut newcomer = weir.client();
        for round in 0..3 {
            if round == 1 && sets {
                said(&mut packet, "set search_path = pg_temp");
            }
            let own = if round > 0 && sets { "pg_temp" } else { "pg_catalog" };
            assert_eq!(said(&mut packet, "show search_path"), [own], "{case}, {round}");
            if sets {
                assert_eq!(said(&mut setter, "show search_path"), ["information_schema"], "{case}, {round}");
            }
            for client in [&mut innocent, &mut newcomer] {
                assert_eq!(said(client, "show search_path"), ["\"$user\", public"], "{case}, {round}");
            }
        }
        if sets {
            said(&mut packet, "reset search_path");
            assert_eq!(said(&mut packet, "show search_path"), ["pg_catalog"], "{case}");
        }
        if sets {
            said(&mut setter, "set scram_iterations = 7777");
            for client in [&mut innocent, &mut newcomer, &mut packet] {
                assert_eq!(said(client, "show scram_iterations"), ["4096"], "{case}");
            }
            assert_eq!(said(&mut setter, "show scram_iterations"), ["7777"], "{case}");
        }
    }
}
