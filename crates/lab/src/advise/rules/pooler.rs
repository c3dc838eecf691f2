//! When a pooler helps, and when it hurts.

use super::{Advice, Cited, Sure, estimates, look, run};
use crate::advise::facts::{Facts, MeasuredPooler, Server};
use crate::advise::runs::RECONNECT;
use crate::experiments::sources::{FREUND_2020, MICROSOFT_2022, MICROSOFT_2026};
use crate::experiments::words::{self, percent};
use crate::report::figures::number;

/// Of open connections, the part that does nothing from which on a pooler in transaction mode has much to share.
const IDLE_PART: f64 = 0.75;
/// With fewer there is nothing to save.
const OPEN_MIN: f64 = 20.0;
/// Sessions that begin per transaction from which on connecting is a part of the work, and per second.
const SESSIONS_PER_TRANSACTION: f64 = 0.1;
const SESSIONS_PER_SECOND: f64 = 1.0;
/// What Microsoft 2026 lost at the peak.
const PUBLISHED_LOSS: f64 = 0.1;

pub fn helps(facts: &Facts) -> Option<Advice> {
    let mut reasons: Vec<(String, Vec<Cited>)> = Vec::new();
    let mut sure = Sure::Measured;
    if let Some(server) = &facts.server {
        reasons.extend(mostly_idle(server).map(|text| (text, vec![FREUND_2020.into()])));
        reasons.extend(reconnecting(server).map(|text| (text, vec![MICROSOFT_2022.into()])));
        if !reasons.is_empty() {
            sure = Sure::Seen;
            reasons.push((String::new(), look(facts).into_iter().collect()));
        }
    }
    let measured = |pooler: &MeasuredPooler| Some((gain(pooler)?, vec![run(facts, &pooler.experiment, &pooler.date)]));
    reasons.extend(facts.runs.poolers.iter().filter_map(measured));
    if reasons.is_empty() {
        return None;
    }
    let texts: Vec<&str> = reasons.iter().map(|(text, _)| text.as_str()).filter(|text| !text.is_empty()).collect();
    let mut text = texts.join(" ");
    if sure == Sure::Seen {
        text.push_str(
            " Before that, see whether the clients keep anything in their sessions between transactions (LISTEN, temporary tables, \
             advisory locks): such clients need session mode, where nothing is shared.",
        );
    }
    let what = if sure == Sure::Seen {
        "A pooler in transaction mode would help here."
    } else {
        "With many clients a pooler helps."
    };
    Some(Advice::new(what, text, sure).from(reasons.into_iter().flat_map(|(_, cited)| cited)))
}

/// Connections that do nothing most of the time.
fn mostly_idle(server: &Server) -> Option<String> {
    let (open, idle) = (server.typical(|moment| moment.open), server.typical(|moment| moment.idle));
    let most = server.most(|moment| moment.open - moment.idle);
    if open < OPEN_MIN || server.hidden > 0.0 || idle < IDLE_PART * open {
        return None;
    }
    Some(format!(
        "Of {} open connections {} were idle at a time, and never more than {} were in use at once: clients wait for the network and \
         their own work most of the time, and could share far fewer.",
        number(open),
        number(idle),
        number(most)
    ))
}

/// Connections that open all the time.
fn reconnecting(server: &Server) -> Option<String> {
    let (sessions, transactions) = (server.rates.sessions?, server.rates.transactions?);
    if sessions < SESSIONS_PER_SECOND || sessions < SESSIONS_PER_TRANSACTION * transactions {
        return None;
    }
    Some(format!(
        "{} sessions began per second, for {} transactions: each costs the server a new process. In the source a connection per \
         transaction took 230 ms each without a pooler and 149 ms with one, for nearly twice the throughput.",
        number(sessions),
        number(transactions)
    ))
}

/// What a pooler gained with many clients.
fn gain(pooler: &MeasuredPooler) -> Option<String> {
    if pooler.experiment == RECONNECT && pooler.at_peak.is_more() {
        let times = number(pooler.at_peak.ratio);
        return Some(format!(
            "Measured in {RECONNECT}, a connection per transaction: through {} {times} times the throughput of {}{}.",
            pooler.pooler,
            pooler.direct,
            estimates::reservations(pooler.at_peak.rounds, &pooler.at_peak.doubts)
        ));
    }
    let (clients, change) = pooler.at_most.as_ref().filter(|(_, change)| change.is_more())?;
    Some(format!(
        "Measured in {}: with {} clients {} gave {} times the throughput of {}{}.",
        pooler.experiment,
        number(*clients),
        pooler.pooler,
        number(change.ratio),
        pooler.direct,
        estimates::reservations(change.rounds, &change.doubts)
    ))
}

/// Where a pooler has nothing to give, or takes something.
pub fn hurts(facts: &Facts) -> Option<Advice> {
    let lost: Vec<&MeasuredPooler> = facts.runs.poolers.iter().filter(|pooler| pooler.at_peak.is_less()).collect();
    let measured: Vec<String> = lost
        .iter()
        .map(|pooler| {
            format!(
                "In {} the best through {} was {} below that of {}{}.",
                pooler.experiment,
                pooler.pooler,
                percent(1.0 - pooler.at_peak.ratio),
                pooler.direct,
                estimates::reservations(pooler.at_peak.rounds, &pooler.at_peak.doubts)
            )
        })
        .collect();
    let runs: Vec<Cited> = lost.iter().map(|pooler| run(facts, &pooler.experiment, &pooler.date)).collect();
    if let Some(text) = facts.server.as_ref().and_then(|server| nothing_to_share(facts, server)) {
        let what = "A pooler would give nothing here now.";
        let reason = [text].into_iter().chain(measured).collect::<Vec<_>>().join(" ");
        return Some(Advice::new(what, reason, Sure::Seen).from([MICROSOFT_2026.into()]).from(runs).from(look(facts)));
    }
    if measured.is_empty() {
        return None;
    }
    let what = "At the server's peak and below, a pooler costs throughput.";
    let reason = format!(
        "{} With few clients that work all the time there is nothing to share, and each message passes one more program, which takes CPU \
         from the server and its clients where all run on one machine, as the lab does unless targets elsewhere are named; on machines of \
         their own they lose less. The source lost about {}.",
        measured.join(" "),
        percent(PUBLISHED_LOSS)
    );
    Some(Advice::new(what, reason, Sure::Measured).from(runs).from([MICROSOFT_2026.into()]))
}

fn nothing_to_share(facts: &Facts, server: &Server) -> Option<String> {
    // Behind a pooler that somebody looks at, the connections are the pooler's.
    if facts.console.is_some() {
        return None;
    }
    let open = server.most(|moment| moment.open);
    let enough = estimates::busy_connections(facts)?.value;
    // Without the counter of sessions nobody knows how many come and go.
    let come = server.rates.sessions?;
    if open > enough || come >= SESSIONS_PER_SECOND || server.moments.is_empty() {
        return None;
    }
    Some(format!(
        "At most {} open, which is not more than keep the server busy (about {}), and {} sessions began per second. A \
         pooler adds a hop to each message; in the source it took about {} of the peak. It helps once clients are many, come and go, or \
         mostly wait.",
        words::of(open, "connection was", "connections were"),
        number(enough),
        number(come),
        percent(PUBLISHED_LOSS)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::advise::facts::MeasuredChange;
    use crate::advise::rules::samples;

    #[test]
    fn idle_connections_and_reconnects_call_for_a_pooler() {
        assert_eq!(helps(&samples::quiet_server()), None);
        let mut facts = samples::crowded_server(16);
        let advice = helps(&facts).unwrap();
        assert!(
            advice.sure == Sure::Seen && advice.reason.contains("Of 450 open connections 440 were idle"),
            "{advice:?}"
        );
        facts.server.as_mut().unwrap().hidden = 3.0;
        assert_eq!(helps(&facts), None, "what is hidden is not idle");
        facts.server.as_mut().unwrap().rates.sessions = Some(400.0);
        assert!(helps(&facts).unwrap().reason.contains("400 sessions began per second, for 500 transactions"));
    }

    #[test]
    fn few_steady_clients_need_none() {
        let mut facts = samples::quiet_server();
        assert!(hurts(&facts).unwrap().reason.contains("At most 7 connections were open"));
        let behind = Facts { console: samples::full_pool().console, ..facts.clone() };
        assert_eq!(hurts(&behind), None, "there is one, and its clients are not seen at the server");
        facts.server.as_mut().unwrap().rates.sessions = None;
        assert_eq!(hurts(&facts), None, "they may come and go unseen");
        assert_eq!(hurts(&samples::crowded_server(16)), None);
    }

    #[test]
    fn a_run_shows_both_sides() {
        let mut facts = Facts::default();
        let pooler = |at_peak, at_most| MeasuredPooler {
            experiment: "single-shard".to_owned(),
            pooler: "Weir".to_owned(),
            direct: "direct".to_owned(),
            at_peak: samples::change(at_peak),
            at_most: Some((1_000.0, samples::change(at_most))),
            ..MeasuredPooler::default()
        };
        facts.runs.poolers = vec![pooler(0.8, 2.5)];
        let measured = &mut facts.runs.poolers[0];
        measured.at_peak.clear = false;
        measured.at_most.as_mut().unwrap().1.clear = false;
        assert_eq!((helps(&facts), hurts(&facts)), (None, None), "it may be chance");
        facts.runs.poolers = vec![pooler(0.8, 2.5)];
        let (good, bad) = (helps(&facts).unwrap(), hurts(&facts).unwrap());
        assert!(
            good.reason.contains("with 1,000 clients Weir gave 2.50 times") && good.sure == Sure::Measured,
            "{good:?}"
        );
        assert!(bad.reason.contains("the best through Weir was 20 % below that of direct. With few"), "{bad:?}");
    }

    #[test]
    fn a_single_round_and_a_doubt_are_said() {
        let mut facts = Facts::default();
        let doubtful = MeasuredChange {
            rounds: 1,
            doubts: vec!["pgbench used 0.97 of a core.".to_owned()],
            ..samples::change(1.9)
        };
        facts.runs.poolers = vec![MeasuredPooler {
            experiment: RECONNECT.to_owned(),
            direct: "direct".to_owned(),
            at_peak: doubtful.clone(),
            ..MeasuredPooler::default()
        }];
        let said = "of direct, in one round only; that figure is doubtful: pgbench used 0.97 of a core.";
        assert!(helps(&facts).unwrap().reason.contains(said), "{:?}", helps(&facts));
        facts.runs.poolers[0].at_peak = MeasuredChange { ratio: 0.5, ..doubtful };
        assert!(hurts(&facts).unwrap().reason.contains(said), "{:?}", hurts(&facts));
    }
}
