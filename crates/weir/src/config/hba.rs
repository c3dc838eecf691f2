//! `auth_hba_file` and `auth_ident_file`: records and maps as PostgreSQL's pg_hba.conf and pg_ident.conf have them.
//!
//! Owns their format ("The pg_hba.conf File" and "User Name Maps" in PostgreSQL's documentation; src/hba.c of PgBouncer 1.25.2). PgBouncer leaves
//! out a line that it cannot read, and another may let in whom that one was to keep out: here such a line is a record that lets nobody in, as far as
//! it can be told for whom it is, and a warning says so.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

use regex_lite::Regex;
use weir_core::hba::{Addresses, Hba, Kind, Map, Mapped, Name, Network, Record};
use weir_core::outside::{Authority, Directory};
use weir_core::settings::AuthType;

use super::ini::Source;
use super::ldap;
use super::problem::{Place, Problems};

/// Files that name one another.
const FILES_DEEP_MAX: usize = 10;
/// Files that are read in all.
const FILES_MAX: usize = 1000;
const TOO_DEEP: &str = "files include one another too deep";

/// Of PAM, where nothing else is said, as with PgBouncer.
pub const PAM_SERVICE: &str = "pgbouncer";

type Maps = BTreeMap<String, Arc<Map>>;

/// A word of a line, and whether it begins with a quote, as no keyword does.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Word {
    text: String,
    quoted: bool,
}

impl Word {
    fn is(&self, keyword: &str) -> bool {
        !self.quoted && self.text == keyword
    }

    /// Behind a sign that means something only where no quote is ahead of it.
    fn behind(&self, sign: char) -> Option<&str> {
        if self.quoted { None } else { self.text.strip_prefix(sign) }
    }

    /// A regular expression may stand in quotes (`regcomp_auth_token`, src/backend/libpq/hba.c at 18).
    fn expression(&self) -> Option<&str> {
        self.text.strip_prefix('/')
    }
}

/// A line's lists of words. Words in a list have commas between them.
type Fields = Vec<Vec<Word>>;

/// What it is that a file is not there.
#[derive(Debug, Clone, Copy)]
enum Missing {
    /// It may come with a mount: nobody is let in without.
    ToCome,
    /// Lines behind it would let in whom it keeps out.
    Wrong,
    Fine,
}

struct Reader<'a> {
    files: usize,
    /// Files name too many others, which was said: nothing comes of the rest.
    over: bool,
    source: &'a mut dyn Source,
    problems: &'a mut Problems,
}

/// Reads both files.
pub fn read(
    hba: Option<(&str, &Place)>,
    ident: Option<(&str, &Place)>,
    source: &mut dyn Source,
    problems: &mut Problems,
) -> Hba {
    let mut reader = Reader { files: 0, over: false, source, problems };
    let maps = ident.map(|(path, place)| reader.maps(path, place)).unwrap_or_default();
    let mut records = Vec::new();
    if let Some((path, place)) = hba {
        for (place, fields) in reader.lines(path, place, Missing::ToCome, 0) {
            records.extend(reader.records(&place, &fields, &maps));
        }
    }
    Hba { records }
}

impl Reader<'_> {
    /// The lines of a file and of those that it includes, without comments and empty ones.
    fn lines(&mut self, path: &str, named_at: &Place, missing: Missing, depth: usize) -> Vec<(Place, Fields)> {
        let Some(text) = self.text(path, named_at, missing) else { return Vec::new() };
        let file: Arc<str> = path.into();
        let mut lines = Vec::new();
        for (number, line) in whole_lines(&text) {
            let place = Place::new(&file, number);
            let fields = fields(&line).unwrap_or_else(|| {
                self.problems.warn(&place, "a quote is open: the line lets nobody in".to_owned());
                vec![Vec::new()]
            });
            let Some((first, rest)) = fields.split_first() else { continue };
            match self.included(path, first, rest) {
                Some(Ok(files)) if depth < FILES_DEEP_MAX => {
                    for (file, missing) in files {
                        lines.extend(self.lines(&file, &place, missing, depth + 1));
                    }
                }
                Some(Ok(_)) => self.is_over(&place, TOO_DEEP.to_owned()),
                Some(Err(wrong)) => self.problems.error(&place, wrong),
                None => lines.push((place, fields)),
            }
        }
        lines
    }

    /// The files that a line names, if it includes any: `include`, `include_if_exists`, `include_dir`.
    fn included(
        &self,
        own: &str,
        first: &[Word],
        rest: &[Vec<Word>],
    ) -> Option<Result<Vec<(String, Missing)>, String>> {
        let ([keyword], [name]) = (first, rest) else { return None };
        let name = beside(own, &name.first()?.text);
        Some(Ok(match &*keyword.text {
            "include" => vec![(name, Missing::Wrong)],
            "include_if_exists" => vec![(name, Missing::Fine)],
            "include_dir" => match self.source.names_in(&name) {
                Ok(names) => in_folder(&name, names),
                Err(error) => return Some(Err(format!("could not read the folder \"{name}\": {error}"))),
            },
            _ => return None,
        }))
    }

    fn text(&mut self, path: &str, named_at: &Place, missing: Missing) -> Option<String> {
        match (self.read(path), missing) {
            (Ok(Some(text)), _) => return Some(text),
            (Ok(None), Missing::Fine) => {}
            (Ok(None), Missing::ToCome) => {
                let text = format!("\"{path}\" is not there: until a reload finds it nobody is let in by it");
                self.problems.warn(named_at, text);
            }
            (Ok(None), Missing::Wrong) => self.problems.error(named_at, not_there(path)),
            (Err(wrong), _) if self.over || self.files > FILES_MAX => self.is_over(named_at, wrong),
            (Err(wrong), _) => self.problems.error(named_at, wrong),
        }
        None
    }

    /// `None`: it is not there.
    fn read(&mut self, path: &str) -> Result<Option<String>, String> {
        self.files += 1;
        if self.over || self.files > FILES_MAX {
            return Err(format!("more than {FILES_MAX} files are named"));
        }
        match self.source.read(path) {
            Ok(bytes) => String::from_utf8(bytes).map(Some).map_err(|_| format!("\"{path}\" is not valid UTF-8")),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(format!("could not read \"{path}\": {error}")),
        }
    }

    fn is_over(&mut self, place: &Place, wrong: String) {
        if !std::mem::replace(&mut self.over, true) {
            self.problems.error(place, wrong);
        }
    }

    /// One that cannot be read lets nobody in for whom it may be.
    fn records(&mut self, place: &Place, fields: &[Vec<Word>], maps: &Maps) -> Vec<Record> {
        let (first, rest) = fields.split_first().unwrap_or((const { &Vec::new() }, &[]));
        let kind = one(first).map_or("", |word| &*word.text);
        let (kinds, wrong): (&[Kind], _) = match kind {
            "local" => (&[Kind::Local], None),
            "host" | "hostnogssenc" => (&[Kind::Host], None),
            "hostssl" => (&[Kind::HostSsl], None),
            "hostnossl" => (&[Kind::HostNoSsl], None),
            // Nobody comes so.
            "hostgssenc" => (&[], None),
            _ => (&[Kind::Local, Kind::Host], Some(format!("\"{kind}\" is no type of a record"))),
        };
        let record = |kind: &Kind| Record {
            line: place.line,
            kind: *kind,
            databases: vec![Name::All, Name::Replication],
            users: vec![Name::All],
            addresses: Addresses::All,
            method: AuthType::Reject,
            map: None,
            authority: None,
        };
        let mut records: Vec<Record> = kinds.iter().map(record).collect();
        let filled = match (wrong, &mut *records) {
            (Some(wrong), _) => Err(wrong),
            (None, [record]) => self.fill(record, place, rest, maps),
            (None, _) => Ok(()),
        };
        if let Err(wrong) = filled {
            for record in &mut records {
                (record.method, record.map, record.authority) = (AuthType::Reject, None, None);
            }
            self.problems.warn(place, format!("{wrong}: the line lets nobody in"));
        }
        records
    }

    fn fill(&mut self, record: &mut Record, place: &Place, fields: &[Vec<Word>], maps: &Maps) -> Result<(), String> {
        let mut fields = fields.iter();
        let mut next = |what: &str| fields.next().ok_or_else(|| format!("the {what} is missing"));
        let (databases, users) = (next("database")?, next("user")?);
        // Of a list that names more than is known, what is known is kept out too.
        let databases = self.names(place, databases, true, 0);
        let users = self.names(place, users, false, 0);
        if let (Ok(databases), Ok(users)) = (&databases, &users) {
            (record.databases, record.users) = (databases.clone(), users.clone());
        }
        databases.and(users)?;
        if record.kind != Kind::Local {
            record.addresses = self.addresses(place, &mut next)?;
        }
        let method = one(next("method")?)?;
        record.method = match &*method.text {
            "trust" => AuthType::Trust,
            "reject" => AuthType::Reject,
            "md5" => AuthType::Md5,
            "password" => AuthType::Plain,
            "scram-sha-256" => AuthType::ScramSha256,
            "cert" => AuthType::Cert,
            "peer" if record.kind == Kind::Local => AuthType::Peer,
            "peer" => return Err("the method \"peer\" is for Unix sockets".to_owned()),
            // As in PostgreSQL.
            "ident" if record.kind == Kind::Local => AuthType::Peer,
            "ident" => AuthType::Ident,
            "pam" => AuthType::Pam,
            "ldap" => AuthType::Ldap,
            "gss" | "sspi" | "radius" | "bsd" | "oauth" => {
                return Err(format!("the method \"{}\" is not supported", method.text));
            }
            other => return Err(format!("\"{other}\" is no method")),
        };
        let options = fields.flatten().map(|option| &*option.text);
        if record.method == AuthType::Ldap {
            record.authority = Some(Authority::Directory(Arc::new(ldap::directory(options)?)));
            return Ok(());
        }
        if record.method == AuthType::Pam {
            record.authority = Some(Authority::Pam { service: PAM_SERVICE.into() });
        }
        for option in options {
            match (record.method, option.split_once('=')) {
                (AuthType::Cert | AuthType::Peer | AuthType::Ident, Some(("map", name))) => {
                    let map = maps.get(name).ok_or_else(|| format!("no map \"{name}\" is in auth_ident_file"))?;
                    record.map = Some(Arc::clone(map));
                }
                (AuthType::Pam, Some(("pamservice", service))) => {
                    record.authority = Some(Authority::Pam { service: service.into() });
                }
                _ => return Err(format!("the option \"{option}\" is not supported")),
            }
        }
        Ok(())
    }

    fn names(&mut self, place: &Place, words: &[Word], databases: bool, depth: usize) -> Result<Vec<Name>, String> {
        let mut names = Vec::new();
        for word in words {
            names.push(match &*word.text {
                "all" if !word.quoted => Name::All,
                "sameuser" if databases && !word.quoted => Name::SameUser,
                "replication" if databases && !word.quoted => Name::Replication,
                "samerole" | "samegroup" if databases && !word.quoted => Name::SameRole,
                _ => match (word.behind('@'), word.expression(), word.behind('+')) {
                    (Some(file), _, _) if !file.is_empty() => {
                        let file = beside(&place.file, file);
                        names.extend(self.names_of_file((&file, Missing::Wrong), databases, depth)?);
                        continue;
                    }
                    (_, Some(expression), _) => Name::Like(regex(expression)?),
                    (_, _, Some(role)) if !databases => Name::MemberOf(role.into()),
                    _ => Name::Is((&*word.text).into()),
                },
            });
        }
        if names.is_empty() { Err("a list is empty".to_owned()) } else { Ok(names) }
    }

    /// `@file`: names, with blanks, commas or ends of lines between them.
    fn names_of_file(
        &mut self,
        (file, missing): (&str, Missing),
        databases: bool,
        depth: usize,
    ) -> Result<Vec<Name>, String> {
        if depth == FILES_DEEP_MAX {
            return Err(TOO_DEEP.to_owned());
        }
        let text = match (self.read(file)?, missing) {
            (Some(text), _) => text,
            (None, Missing::Fine) => return Ok(Vec::new()),
            (None, _) => return Err(not_there(file)),
        };
        let inner = Place::new(&file.into(), 0);
        let mut names = Vec::new();
        for (_, line) in whole_lines(&text) {
            let fields = fields(&line).ok_or_else(|| format!("a quote is open in \"{file}\""))?;
            let Some((first, rest)) = fields.split_first() else { continue };
            if let Some(files) = self.included(file, first, rest) {
                for (file, missing) in files? {
                    names.extend(self.names_of_file((&file, missing), databases, depth + 1)?);
                }
                continue;
            }
            for words in &fields {
                names.extend(self.names(&inner, words, databases, depth + 1)?);
            }
        }
        Ok(names)
    }

    fn addresses<'f>(
        &mut self,
        place: &Place,
        next: &mut impl FnMut(&str) -> Result<&'f Vec<Word>, String>,
    ) -> Result<Addresses, String> {
        let word = one(next("address")?)?;
        if word.is("all") {
            return Ok(Addresses::All);
        }
        if word.is("samehost") || word.is("samenet") {
            return self.own_networks(word.is("samehost"));
        }
        let (address, bits) = match word.text.split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (&*word.text, None),
        };
        let Ok(address) = address.parse::<IpAddr>() else {
            return match bits {
                None => Ok(Addresses::Host(address.into())),
                Some(_) => Err(format!("\"{}\" is the name of a host, which has no mask", word.text)),
            };
        };
        let network = match bits {
            Some(bits) => bits.parse().ok().and_then(|bits| Network::with_bits(address, bits)),
            None => {
                let mask = one(next("mask")?)?.text.parse::<IpAddr>().ok();
                mask.filter(|mask| mask.is_ipv4() == address.is_ipv4()).map(|mask| Network { address, mask })
            }
        };
        let network = network.ok_or_else(|| format!("\"{}\" has no valid mask", word.text))?;
        if network.is_empty() {
            let text = format!("the address {address} has bits that its mask leaves out: the line is for nobody");
            self.problems.warn(place, text);
        }
        Ok(Addresses::Of(vec![network]))
    }

    /// As they are now (`pg_foreach_ifaddr`, src/backend/libpq/ifaddr.c at 18, asks at each login). A mask of no bits, or of another family, is a
    /// whole one there (`run_ifaddr_callback`): some tunnels have such.
    fn own_networks(&self, alone: bool) -> Result<Addresses, String> {
        let own =
            self.source.own_addresses().map_err(|error| format!("the machine's addresses are not known: {error}"))?;
        let network = |(address, mask): (IpAddr, IpAddr)| {
            let is_whole = mask.is_unspecified() || mask.is_ipv4() != address.is_ipv4();
            if alone || is_whole {
                Network::with_bits(address, if address.is_ipv4() { 32 } else { 128 })
            } else {
                Network::around(address, mask)
            }
        };
        Ok(Addresses::Of(own.into_iter().filter_map(network).collect()))
    }

    fn maps(&mut self, path: &str, named_at: &Place) -> Maps {
        let mut pairs: BTreeMap<String, Vec<_>> = BTreeMap::new();
        for (place, fields) in self.lines(path, named_at, Missing::ToCome, 0) {
            match pair(&fields) {
                Ok((map, pair)) => pairs.entry(map).or_default().push(pair),
                Err(wrong) => self.problems.warn(&place, format!("{wrong}: the line is left out")),
            }
        }
        pairs.into_iter().map(|(name, pairs)| (name, Arc::new(Map { pairs }))).collect()
    }
}

/// Of `auth_ldap_options`, which are words as on a line.
pub fn directory(options: &str) -> Result<Directory, String> {
    let fields = fields(options).ok_or("a quote is open")?;
    ldap::directory(fields.iter().flatten().map(|word| &*word.text))
}

/// A line of `auth_ident_file`: the map, the name of the system, the user.
fn pair(fields: &[Vec<Word>]) -> Result<(String, (Name, Mapped)), String> {
    let [map, system, user] = fields else { return Err("three words are expected".to_owned()) };
    let (map, system, user) = (one(map)?, one(system)?, one(user)?);
    let name = match system.expression() {
        Some(expression) => Name::Like(regex(expression)?),
        None => Name::Is((&*system.text).into()),
    };
    if user.behind('+').is_some() || user.expression().is_some() {
        return Err(format!("the user \"{}\" is not supported", user.text));
    }
    let mapped = if user.is("all") { Mapped::All } else { Mapped::Is((&*user.text).into()) };
    Ok((map.text.clone(), (name, mapped)))
}

fn regex(expression: &str) -> Result<Regex, String> {
    Regex::new(expression).map_err(|error| format!("the regular expression \"{expression}\" is not valid: {error}"))
}

fn one(words: &[Word]) -> Result<&Word, String> {
    match words {
        [word] => Ok(word),
        _ => Err("a list stands where one word is expected".to_owned()),
    }
}

/// As the system says it.
fn not_there(path: &str) -> String {
    format!("could not read \"{path}\": {}", std::io::Error::from(ErrorKind::NotFound))
}

/// Those of a folder that are read, by their names' bytes (`GetConfFilesInDir`, src/backend/utils/misc/conffiles.c at 18).
fn in_folder(folder: &str, mut names: Vec<String>) -> Vec<(String, Missing)> {
    names.retain(|name| name.ends_with(".conf") && !name.starts_with('.'));
    names.sort_unstable();
    names.iter().map(|name| (format!("{folder}/{name}"), Missing::Wrong)).collect()
}

/// Lines with the number of their first: one goes on behind a backslash.
fn whole_lines(text: &str) -> Vec<(u32, String)> {
    let mut lines: Vec<(u32, String)> = Vec::new();
    let mut goes_on = false;
    for (number, line) in (1..).zip(text.split('\n')) {
        let line = line.trim_end_matches('\r');
        let part = line.strip_suffix('\\');
        match lines.last_mut().filter(|_| goes_on) {
            Some((_, begun)) => begun.push_str(part.unwrap_or(line)),
            None => lines.push((number, part.unwrap_or(line).to_owned())),
        }
        goes_on = part.is_some();
    }
    lines
}

/// A file that another names stands beside that.
fn beside(own: &str, file: &str) -> String {
    let folder = Path::new(own).parent().unwrap_or(Path::new(""));
    folder.join(file).to_string_lossy().into_owned()
}

/// The lists of a line, up to a comment: what has a comma at its end goes on with the next word, and one ahead of a word is nothing (`next_field_expand`,
/// src/backend/libpq/hba.c at 18). `None`: a quote is open, which PostgreSQL closes at the end of the line.
fn fields(line: &str) -> Option<Fields> {
    let mut fields: Fields = Vec::new();
    let (mut goes_on, mut rest) = (false, line);
    loop {
        rest = rest.trim_start_matches(|char| is_blank(char) || char == ',');
        if rest.is_empty() || rest.starts_with('#') {
            return Some(fields);
        }
        let (word, behind) = word(rest)?;
        match fields.last_mut().filter(|_| goes_on) {
            Some(list) => list.push(word),
            None => fields.push(vec![word]),
        }
        goes_on = behind.starts_with(',');
        rest = behind;
    }
}

/// As PostgreSQL has them (`pg_isblank`): any other space is part of a name.
fn is_blank(char: char) -> bool {
    matches!(char, ' ' | '\t' | '\r')
}

/// Up to a blank, a comma or a comment that stands in no quotes.
fn word(text: &str) -> Option<(Word, &str)> {
    let (mut word, mut inside, mut was_quote) = (String::new(), false, false);
    let quoted = text.starts_with('"');
    for (at, char) in text.char_indices() {
        if !inside && (is_blank(char) || matches!(char, ',' | '#')) {
            return Some((Word { text: word, quoted }, &text[at..]));
        }
        // Two of them in quotes are one.
        if char != '"' || was_quote {
            word.push(char);
        }
        was_quote = inside && char == '"' && !was_quote;
        inside ^= char == '"';
    }
    (!inside).then_some((Word { text: word, quoted }, ""))
}

#[cfg(test)]
mod tests;
