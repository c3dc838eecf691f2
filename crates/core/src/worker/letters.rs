//! What a worker writes to others and reads from them. A letter to itself takes the same way, without the journey.

use crate::failure::Failure;
use crate::id::{ConnId, Party, WorkerId};
use crate::mail::Letter;
use crate::stats::Counters;
use crate::timers::Subject;
use crate::worker::Process;
use crate::worker::supply::Arrival;

impl Process {
    pub(super) fn read_letter(&mut self, from: WorkerId, letter: Letter, conn: Option<ConnId>) {
        match (letter, conn.map(ConnId::party)) {
            (Letter::Permit { pool, permit }, _) => self.service.permit(&pool, permit),
            (Letter::Setback { pool, setback }, _) => self.service.set_back(&pool, setback),
            (Letter::Full { pool, alone }, _) => self.service.full(&pool, alone),
            (Letter::Share { pool, share }, _) => self.service.share_told(&pool, share),
            (Letter::Recall { pool, to, wait, only_hope }, _) => self.service.recall(&pool, to, wait, only_hope),
            (Letter::Homes { pool, homes }, _) => self.service.pool_lives_on(&pool, homes),
            (Letter::Shed { pool, to, share_permille }, _) => self.service.shed(&pool, to, share_permille),
            (Letter::Astray { pool }, _) => self.service.went_astray(&pool),
            (Letter::Forget { moved }, _) => self.service.sessions.forget_note(moved),
            (Letter::Released { process_id }, _) => self.service.sessions.release(process_id),
            (Letter::KillClient { number }, _) => drop(self.kill_client(number)),
            (Letter::ListenerLost { clients }, _) => {
                clients.into_iter().for_each(|id| self.service.fail_between_messages(id, Failure::ListenerLost));
            }
            (Letter::Moves { pool, client, kills }, Some(Party::Client(id))) => {
                self.service.client_arrives(from, &pool, *client, kills, id);
            }
            (Letter::Moves { client, .. }, _) => self.service.client_lost(from, *client),
            (Letter::Guest { passport }, Some(Party::Client(id))) => self.service.guest_arrives(from, *passport, id),
            (Letter::Evict { pool }, _) => self.service.evict(&pool),
            (Letter::Admitted { client, database, user, refused }, _) => {
                self.service.placed(client, database, user, refused)
            }
            (Letter::Shutdown { command }, _) => self.shut_down(command),
            (Letter::Client { peer, local, number }, Some(Party::Client(id))) => {
                self.service.begin_client(id, peer, local, number);
            }
            (Letter::Server { pool, server, welcome, reconnects, database }, Some(Party::Server(id))) => {
                self.service.take_server(&pool, Arrival { server, welcome, reconnects, database }, id);
            }
            (Letter::Welcome { pool, welcome, credentials }, _) => {
                self.service.traffic.learn_welcome(&pool, &welcome);
                self.service.traffic.learn_credentials(&pool, *credentials);
            }
            (Letter::Credentials { pool, credentials }, _) => {
                self.service.traffic.learn_credentials(&pool, *credentials)
            }
            (Letter::Cancel { process_id, key, reply_to, asker }, _) => {
                self.service.cancel_asked(asker, process_id, key, reply_to);
            }
            (Letter::PassOn { stray }, _) => self.service.pass_on(from, stray),
            (Letter::AskerLeft { peer, reply_to }, _) => self.service.asker_left(from, peer, reply_to),
            (Letter::CancelDone { reply_to, unknown }, _) => self.service.cancel_answered(reply_to, unknown),
            (Letter::CodeAltered { server }, _) => self.service.traffic.code_altered_on(server),
            (Letter::Cluster { database, known }, _) => self.learn_cluster(&database, &known),
            (Letter::CodeChanged { database, by }, _) => self.service.traffic.code_changed(&database, &by),
            (Letter::KeepPinned { pool, keep }, _) => self.service.keep_pinned(&pool, keep),
            (Letter::Met { realm, asked }, _) => {
                self.service.known.meet(realm, asked);
            }
            (Letter::Outdated { definition }, _) => self.service.traffic.cx.statements.refresh(&definition),
            (Letter::Ask { question, asker }, _) => self.asked(from, &question, asker),
            (Letter::Tell { answer, asker }, _) => self.service.console_told(asker, *answer),
            (Letter::Server { pool, .. }, _) => self.service.server_lost(pool),
            // Its connection has ended already.
            (Letter::Counted { counted }, _) => self.log_stats(*counted),
            (Letter::Client { .. }, _) => {
                self.service.traffic.cx.tell_steward(Letter::Gone { admitted: None, moved: None })
            }
            (letter, _) => self.steward_letter(from, letter),
        }
    }

    /// A worker has told what it has counted: when all have, the log has it.
    fn log_stats(&mut self, counted: Counters) {
        if let Some(all) = self.averages.gather(counted, self.service.traffic.cx.config.workers) {
            let text = all.for_log(self.averages.counted_for());
            self.service.traffic.cx.log_info(text);
        }
    }

    /// What only the steward reads.
    fn steward_letter(&mut self, from: WorkerId, letter: Letter) {
        let now = self.service.traffic.cx.now;
        let Some(steward) = &mut self.steward else { return };
        match letter {
            Letter::Want { pool, since, bound } => steward.want(now, from, pool, (since, bound)),
            Letter::WantsNoMore { pool } => steward.wants_no_more(from, &pool),
            Letter::Fill { pool } => steward.fill(now, from, &pool),
            Letter::FillOne { pool } => steward.fill_one(now, from, &pool),
            Letter::PermitBack { pool, tried } => steward.permit_back(now, from, &pool, tried.as_ref()),
            Letter::Unused { pool, endpoint } => steward.permit_unused(now, from, &pool, endpoint.as_ref()),
            Letter::LoginFailed { pool, endpoint, fails } => {
                steward.login_failed(now, from, &pool, &endpoint, fails);
            }
            Letter::SecretChanged { pool } => steward.secret_changed(now, &pool),
            Letter::LoginSucceeded { pool, endpoint } => steward.login_succeeded(now, from, &pool, &endpoint),
            Letter::NoneLasts { pool, servers } => steward.none_lasts(now, from, &pool, servers),
            Letter::Pinned { pool, pinned, standing } => steward.pinned(from, &pool, (pinned, standing)),
            Letter::Gave { pool, to } => steward.gave(from, to, &pool),
            Letter::ShareExceeded { pool } => steward.share_exceeded(from, &pool),
            Letter::Admit { client, database, user } => {
                let refused = steward.admit(&database, &user);
                steward.letters.push((from, Letter::Admitted { client, database, user, refused }));
            }
            Letter::Gone { admitted, moved } => {
                steward.gone(from, admitted, moved);
                self.look_whether_all_left();
            }
            Letter::Abroad { servers, clients, is_all } => steward.told_abroad(now, servers, clients, is_all),
            Letter::OnItsWay => steward.goes_its_way(1),
            Letter::OffItsWay => {
                steward.goes_its_way(-1);
                self.look_whether_all_left();
            }
            Letter::PredecessorEnded => {
                steward.predecessor_ended(now);
                self.look_whether_all_left();
            }
            Letter::CameOver { database, user } => steward.came_over(from, &database, &user),
            Letter::Lives { moved, left } => steward.lives(from, moved, left),
            Letter::CancelFor { process_id, key, reply_to } => {
                let holder = steward.holder(process_id);
                steward.letters.push((holder, Letter::Cancel { process_id, key, reply_to, asker: from }));
            }
            Letter::Withdraw { database, user } => {
                steward.withdraw(&database, &user);
                self.look_whether_all_left();
            }
            Letter::Load { busy_permille, pools } => {
                steward.load(from, busy_permille, &pools);
                self.look_at_loads();
            }
            Letter::Crowded { full } => steward.crowded(from, full),
            Letter::Order { command } => return self.command(command),
            Letter::Quiet => return self.count_quiet(),
            _ => {}
        }
        self.post_stewards_letters();
    }

    /// The steward looks whether pools should live elsewhere, and says when it wants to look again.
    pub(super) fn look_at_loads(&mut self) {
        let Some(steward) = &mut self.steward else { return };
        steward.look_at_loads(self.service.traffic.cx.now);
        let due = steward.look_at;
        self.service.traffic.cx.timers.set(Subject::Loads, &mut self.loads_deadline, due);
        self.post_stewards_letters();
    }
}
