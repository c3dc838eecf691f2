//! Rows: whose they are, and what they tell of the session they come from.

use super::replies::Expect;
use super::{Client, Stage};
use crate::postgres::{CONFIGURED, CUSTOM, REPORTED, UNREPORTED, configured_number};

impl Client {
    pub(super) fn row(&mut self, stage: &mut Stage, body: &[u8]) {
        let zone = self.zone_parsed_under().map(str::to_owned);
        let Some(Expect::Rows { tag, next, bytes, .. }) = self.front() else { return };
        let values = row_values(body);
        let right = match values.as_deref() {
            Some([owner, row, _, filler]) => {
                *owner == tag.to_string().as_bytes()
                    && *row == next.to_string().as_bytes()
                    && filler.len() == *bytes as usize
            }
            _ => false,
        };
        *next += 1;
        if !right {
            let text = format!("row {:?}", String::from_utf8_lossy(&body[..body.len().min(120)]));
            return self.wrong(stage, &text);
        }
        let read = values.as_ref().map_or(&[][..], |values| values[3]);
        if let Some(zone) = zone.filter(|zone| !zone.bytes().cycle().take(read.len()).eq(read.iter().copied())) {
            let read = String::from_utf8_lossy(&read[..read.len().min(30)]);
            return self.parsed_wrongly(stage, &format!("{read} instead of {zone}"));
        }
        let seen = values.map(|values| String::from_utf8_lossy(values[2]).into_owned()).unwrap_or_default();
        self.session_told(stage, seen);
    }

    /// What a row tells of the session that it comes from must be what this one's is.
    pub(super) fn session_told(&mut self, stage: &mut Stage, mut seen: String) {
        let mut session: String = REPORTED.iter().map(|name| format!("{name}={}\n", self.model[name])).collect();
        // What is not reported is kept for a client that set it when it came in, and not promised to others.
        let own = self.own.local.or(self.model.get(UNREPORTED).map(String::as_str));
        let own = own.map(|value| format!("{UNREPORTED}={value}\n"));
        let kept = self.kept_description();
        if let Some((first, rest)) = seen.split_once('\n') {
            self.configured =
                first.strip_prefix(CONFIGURED).and_then(|value| configured_number(value.strip_prefix('=')?));
            let path = self.model.get(CONFIGURED).map(|path| format!("{CONFIGURED}={path}"));
            if let Some(path) = path.filter(|path| path != first) {
                let text = format!("the server had {first} and not {path}: {}", self.describe());
                return stage.checks.fail("session parameters leaked", text);
            }
            seen = rest.to_owned();
        }
        match kept {
            Some(kept) => seen = seen.replacen(&kept, "", 1),
            None => seen.truncate(seen.find(CUSTOM).unwrap_or(seen.len())),
        }
        match own {
            Some(own) => session += &own,
            None => seen.truncate(seen.find(UNREPORTED).unwrap_or(seen.len())),
        }
        if seen != session {
            let text = format!("the server had\n{seen}and not\n{session}{}", self.describe());
            stage.checks.fail("session parameters leaked", text);
        }
    }

    /// What TimeZone was when the statement was parsed that is executed now.
    fn zone_parsed_under(&self) -> Option<&str> {
        let exchange = self.owed.front()?;
        let then = match &exchange.requires {
            Some(name) => self.prepared.get(name).map(|prepared| &prepared.zone),
            None if exchange.batch => self.names.zone(),
            None => self.model.get("TimeZone"),
        };
        then.map(String::as_str)
    }

    /// What a statement read of the session's parameters when it was parsed must be this session's.
    fn parsed_wrongly(&self, stage: &mut Stage, what: &str) {
        stage.checks.fail("statement parsed under another's parameters", format!("{what}: {}", self.describe()));
    }

    pub(super) fn zone_row(&mut self, stage: &mut Stage, body: &[u8]) {
        let Some(Expect::Zone { tag, zone }) = self.front() else { return };
        let wanted = [tag.to_string(), zone.clone()];
        let values = row_values(body).unwrap_or_default();
        let got = [0, 3].map(|place| values.get(place).map(|value| String::from_utf8_lossy(value).into_owned()));
        if got[0].as_ref() != Some(&wanted[0]) {
            return self.wrong(stage, &format!("row {got:?} instead of {wanted:?}"));
        }
        if got[1].as_ref() != Some(&wanted[1]) {
            return self.parsed_wrongly(stage, &format!("{got:?} instead of {wanted:?}"));
        }
        self.pop();
    }
}

pub(super) fn row_values(body: &[u8]) -> Option<Vec<&[u8]>> {
    let count = u16::from_be_bytes(*body.first_chunk()?);
    let mut rest = &body[2..];
    let mut values = Vec::new();
    for _ in 0..count {
        let length = u32::from_be_bytes(*rest.first_chunk()?) as usize;
        values.push(rest.get(4..4 + length)?);
        rest = &rest[4 + length..];
    }
    Some(values)
}
