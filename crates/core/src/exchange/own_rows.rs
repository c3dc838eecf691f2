//! Rows that answer questions of ours: what parameters are, what a client has left in its session, what texts call.

use weir_wire::backend;

use super::Answers;
use super::replies::{READ_BYTES_MAX, Reply, Verdict};
use crate::client::{Client, ClientState};
use crate::login::Phase;
use crate::owed::{Note, Owed};
use crate::parameters::encodings::reads_alike;

impl Answers<'_> {
    /// A row that nobody asked for but us: it may tell the parameters that a statement was parsed under or is used under, or what
    /// PostgreSQL has made of a startup packet's.
    #[cold]
    pub(super) fn own_row(&mut self, reply: &Reply<'_>) -> Verdict {
        if self.cx.survey.asks(self.server_id) {
            return self.survey_row(reply);
        }
        if self.server.kept.is_looking() || self.pool.knowledge.read_by(self.server_id).is_some() {
            return self.look_row(reply);
        }
        if let Some(Note::Unnamed(..)) = self.server.owed.front().and_then(|owed| owed.note.as_deref()) {
            return self.unnamed_answered(reply);
        }
        let statement = self.server.owed.front().map_or(0, Owed::named_statement);
        let logs_in = |client: &Client| matches!(client.state, ClientState::Login(_));
        if statement == 0 && !self.client.as_ref().is_some_and(|(_, client)| logs_in(client)) {
            return Verdict::Used(self.pass(reply, None));
        }
        let body = reply.whole_body();
        if body.is_none() && reply.total <= READ_BYTES_MAX {
            return Verdict::More(reply.total);
        }
        let values = body.and_then(|body| backend::row_values(body).ok());
        if let Some(Note::Presumes(presumed)) = self.server.owed.front().and_then(|owed| owed.note.as_deref()) {
            if values
                .and_then(|values| presumed.answered(&values, self.server.encoding()))
                .is_none_or(|answered| answered != **presumed)
            {
                self.server.mirror.doubt(statement);
            }
            return Verdict::Used(self.pass(reply, None));
        }
        let Some((_, client)) = self.client.as_mut() else { return Verdict::Used(self.pass(reply, None)) };
        match &mut client.state {
            ClientState::Login(login) => {
                if let Phase::LookingUp(lookup) = &mut login.phase {
                    lookup.row(values.as_deref());
                    return Verdict::Used(self.pass(reply, None));
                }
                let all_ascii = |row: &Vec<Option<&[u8]>>| row.iter().flatten().all(|value| value.is_ascii());
                login.illegible |= !values.as_ref().is_some_and(all_ascii)
                    && !reads_alike(self.server.parameters.encoding(), self.server.encoding());
                let tried = values.and_then(|row| self.server.parameters.with_tried(&login.parameters, &row));
                if let Some(parameters) = tried {
                    self.server.parameters = self.cx.parameter_sets.intern(parameters);
                }
            }
            ClientState::Ready(session) => {
                let welcome = self.server.welcome.clone();
                let encoding = welcome.as_ref().map_or(&b""[..], |welcome| welcome.encoding());
                let (sets, owed) = (&mut self.cx.parameter_sets, &mut self.server.owed);
                session.statements.parameters_answered(statement, values.as_deref(), encoding, sets, owed);
            }
            _ => {}
        }
        Verdict::Used(self.pass(reply, None))
    }

    /// The parameters under which the client's unnamed statement was parsed.
    fn unnamed_answered(&mut self, reply: &Reply<'_>) -> Verdict {
        let body = reply.whole_body();
        if body.is_none() && reply.total <= READ_BYTES_MAX {
            return Verdict::More(reply.total);
        }
        let values = body.and_then(|body| backend::row_values(body).ok());
        let encoding = self.server.encoding().to_vec();
        if let Some(Note::Unnamed(id, reading)) = self.server.owed.front().and_then(|owed| owed.note.as_deref()) {
            let (id, answered) = (*id, values.and_then(|values| reading.answered(&values, &encoding)));
            let answered = answered.map(|set| self.cx.parameter_sets.intern(set));
            if let Some(session) = self.client.as_mut().and_then(|(_, client)| client.session_mut()) {
                session.unnamed.parameters_answered(id, answered.as_ref());
            }
        }
        Verdict::Used(self.pass(reply, None))
    }

    /// A row of a cluster's catalogue.
    fn survey_row(&mut self, reply: &Reply<'_>) -> Verdict {
        let body = reply.whole_body();
        if body.is_none() && reply.total <= READ_BYTES_MAX {
            return Verdict::More(reply.total);
        }
        let values = body.and_then(|body| backend::row_values(body).ok());
        if let Some(look) = &mut self.cx.survey.look {
            look.row(values.as_deref());
        }
        Verdict::Used(self.pass(reply, None))
    }

    /// A row that tells what its client has left in its session, or what texts call.
    #[cold]
    fn look_row(&mut self, reply: &Reply<'_>) -> Verdict {
        let body = reply.whole_body();
        if body.is_none() && reply.total <= READ_BYTES_MAX {
            return Verdict::More(reply.total);
        }
        let server = &mut *self.server;
        let legible = reads_alike(server.parameters.encoding(), server.encoding());
        let values = body.and_then(|body| backend::row_values(body).ok());
        if let Some(reading) = self.pool.knowledge.read_by(self.server_id) {
            reading.told(values.as_deref());
        } else if let Some(look) = server.kept.looking() {
            look.row(values.as_deref(), &server.parameters, legible);
        }
        Verdict::Used(self.pass(reply, None))
    }
}
