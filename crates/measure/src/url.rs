//! Where to connect, as libpq writes it: a connection URI or a keyword string, with its password kept apart.
//!
//! libpq does the connecting, so parameters that are not known here pass through. The password goes to children by
//! `PGPASSWORD` only: command lines, records and reports show everything else. Chapter 34.1.1 of PostgreSQL's manual.

use std::fmt;
use std::process::Command;
use std::str::FromStr;

use anyhow::{Context, Result, bail};

const SCHEMES: [&str; 2] = ["postgres://", "postgresql://"];
const DEFAULT_PORT: u16 = 5432;
/// Beside `password`, which has an environment variable.
const SECRETS: [&str; 2] = ["sslpassword", "oauth_client_secret"];
/// What makes several hosts one cluster.
const SPREAD: (&str, &str) = ("load_balance_hosts", "random");

/// `Debug` shows what `Display` shows: no password.
#[derive(Clone, PartialEq, Eq)]
pub struct Url {
    /// In the order given, without `password`; each keyword once.
    parameters: Vec<(String, String)>,
    password: Option<String>,
}

impl Url {
    /// An endpoint on the loopback that the lab started itself, and that trusts everybody there.
    pub fn loopback(port: u16, user: &str, database: &str) -> Url {
        let parameters = [
            ("host", "127.0.0.1"),
            ("port", &port.to_string()),
            ("user", user),
            ("dbname", database),
            ("sslmode", "disable"),
            // Without this libpq asks for Kerberos first, which nobody here has.
            ("gssencmode", "disable"),
        ];
        let parameters = parameters.map(|(key, value)| (key.to_owned(), value.to_owned())).to_vec();
        Url { parameters, password: None }
    }

    pub fn get(&self, keyword: &str) -> Option<&str> {
        self.parameters.iter().find(|(key, _)| key == keyword).map(|(_, value)| value.as_str())
    }

    /// Hosts as given, several with commas; `None` where libpq takes its default, a Unix socket.
    pub fn host(&self) -> Option<&str> {
        self.get("hostaddr").or_else(|| self.get("host")).filter(|host| !host.is_empty())
    }

    /// The first port.
    pub fn port(&self) -> u16 {
        let first = self.get("port").and_then(|ports| ports.split(',').next());
        first.and_then(|port| port.parse().ok()).unwrap_or(DEFAULT_PORT)
    }

    pub fn with_database(&self, database: &str) -> Url {
        self.clone().with("dbname", database)
    }

    /// With this parameter, in place of one of its name.
    #[must_use]
    pub fn with(mut self, keyword: &str, value: &str) -> Url {
        self.set(keyword, value);
        self
    }

    /// Where connections go: to this endpoint, or, where `load_balance_hosts=random` spreads them over several hosts (libpq from
    /// 16 on, chapter 34.1.2), to each of these. No node has the keyword, which an older libpq would not take. Without it
    /// several hosts are libpq's to try in turn, for a server that may have moved.
    pub fn nodes(&self) -> Vec<Url> {
        if self.get(SPREAD.0) != Some(SPREAD.1) {
            return vec![self.clone()];
        }
        let lists = ["host", "hostaddr", "port"]
            .map(|keyword| (keyword, self.get(keyword).map_or(Vec::new(), |values| values.split(',').collect())));
        let count = lists[..2].iter().map(|(_, values)| values.len()).fold(1, usize::max);
        let node = |index| {
            let mut node = self.clone();
            node.parameters.retain(|(key, _)| key != SPREAD.0);
            for (keyword, values) in &lists {
                // One port may stand for all hosts.
                let only = values.first().filter(|_| values.len() == 1);
                if let Some(value) = values.get(index).or(only) {
                    node.set(keyword, value);
                }
            }
            node
        };
        (0..count).map(node).collect()
    }

    /// One that can be asked for all.
    pub fn first_node(&self) -> Url {
        self.nodes().swap_remove(0)
    }

    /// With further settings of the session, behind those that it has.
    pub fn with_options(&self, settings: &str) -> Url {
        let mut url = self.clone();
        let options = self.get("options").map_or_else(|| settings.to_owned(), |own| format!("{own} {settings}"));
        url.set("options", &options);
        url
    }

    /// libpq's keyword string without the password: what goes on a command line.
    pub fn conninfo(&self) -> String {
        let pairs: Vec<String> =
            self.parameters.iter().map(|(key, value)| format!("{key}={}", quoted(value))).collect();
        pairs.join(" ")
    }

    /// What a child needs beside [`Url::conninfo`].
    pub fn give_password(&self, command: &mut Command) {
        if let Some(password) = &self.password {
            command.env("PGPASSWORD", password);
        }
    }

    /// Without the password, should a program have repeated it.
    pub fn hide_password(&self, text: &str) -> String {
        match &self.password {
            Some(password) if !password.is_empty() => text.replace(password.as_str(), "***"),
            _ => text.to_owned(),
        }
    }

    fn set(&mut self, keyword: &str, value: &str) {
        if keyword == "password" {
            self.password = Some(value.to_owned());
            return;
        }
        match self.parameters.iter_mut().find(|(key, _)| key == keyword) {
            Some((_, old)) => value.clone_into(old),
            None => self.parameters.push((keyword.to_owned(), value.to_owned())),
        }
    }

    fn of_uri(rest: &str) -> Result<Url> {
        let mut url = Url { parameters: Vec::new(), password: None };
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, database) = rest.split_once('/').unwrap_or((rest, ""));
        // A password may hold an `@` that somebody forgot to encode; a host cannot.
        let (user, hosts) = authority.rsplit_once('@').unwrap_or(("", authority));
        url.set_hosts(hosts)?;
        let (user, password) = user.split_once(':').map_or((user, None), |(user, password)| (user, Some(password)));
        for (keyword, value) in [("user", user), ("password", password.unwrap_or("")), ("dbname", database)] {
            if !value.is_empty() {
                url.set(keyword, &decoded(value)?);
            }
        }
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (keyword, value) = pair.split_once('=').context("a parameter after ? has no =")?;
            let (keyword, value) = (decoded(keyword)?, decoded(value)?);
            // libpq takes JDBC's spelling too (conninfo_uri_parse_params in fe-connect.c).
            let (keyword, value) = if (keyword.as_str(), value.as_str()) == ("ssl", "true") {
                ("sslmode".into(), "require".into())
            } else {
                (keyword, value)
            };
            url.set(&keyword, &value);
        }
        Ok(url)
    }

    /// `host:port,host:port`; an IPv6 address stands in brackets.
    fn set_hosts(&mut self, hosts: &str) -> Result<()> {
        if hosts.is_empty() {
            return Ok(());
        }
        let (mut names, mut ports) = (Vec::new(), Vec::new());
        for host in hosts.split(',') {
            let (name, port) = match host.strip_prefix('[') {
                Some(rest) => {
                    let (address, rest) = rest.split_once(']').context("an IPv6 address has no closing bracket")?;
                    (address, rest.strip_prefix(':').unwrap_or(rest))
                }
                None => host.rsplit_once(':').unwrap_or((host, "")),
            };
            if !port.is_empty() && port.parse::<u16>().is_err() {
                bail!("{port:?} is no port");
            }
            names.push(decoded(name)?);
            ports.push(port);
        }
        if names.iter().any(|name| !name.is_empty()) {
            self.set("host", &names.join(","));
        }
        if ports.iter().any(|port| !port.is_empty()) {
            self.set("port", &ports.join(","));
        }
        Ok(())
    }

    /// `host=localhost dbname='with a blank'`; a backslash quotes one character.
    fn of_keywords(text: &str) -> Result<Url> {
        let mut url = Url { parameters: Vec::new(), password: None };
        let mut rest = text.trim_start();
        while !rest.is_empty() {
            let (keyword, after) = rest.split_once('=').context("a connection string is keyword=value, or a URI")?;
            let (value, after) = keyword_value(after.trim_start())?;
            url.set(keyword.trim(), &value);
            rest = after.trim_start();
        }
        Ok(url)
    }
}

/// The value, and what follows it.
fn keyword_value(text: &str) -> Result<(String, &str)> {
    let (mut value, quote) = (String::new(), text.starts_with('\''));
    let mut characters = text.char_indices().skip(usize::from(quote));
    while let Some((at, character)) = characters.next() {
        match character {
            '\\' => value.push(characters.next().context("a connection string ends in a backslash")?.1),
            '\'' if quote => return Ok((value, &text[at + 1..])),
            blank if blank.is_whitespace() && !quote => return Ok((value, &text[at..])),
            other => value.push(other),
        }
    }
    if quote {
        bail!("a quote in the connection string is not closed");
    }
    Ok((value, ""))
}

/// Quoted where libpq's keyword string wants it.
fn quoted(value: &str) -> String {
    if !value.is_empty() && !value.contains(|c: char| c.is_whitespace() || c == '\'' || c == '\\') {
        return value.to_owned();
    }
    format!("'{}'", value.replace('\\', "\\\\").replace('\'', "\\'"))
}

/// Without percent signs.
fn decoded(text: &str) -> Result<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes().iter();
    while let Some(byte) = rest.next() {
        if *byte != b'%' {
            bytes.push(*byte);
            continue;
        }
        let mut digit = || rest.next().and_then(|digit| char::from(*digit).to_digit(16));
        let (Some(high), Some(low)) = (digit(), digit()) else { bail!("a % stands before two hexadecimal digits") };
        bytes.push((high << 4 | low).try_into().context("two hexadecimal digits are one byte")?);
    }
    String::from_utf8(bytes).context("a connection URI must be UTF-8")
}

impl FromStr for Url {
    type Err = anyhow::Error;

    /// The error never repeats the text: it may hold a password.
    fn from_str(text: &str) -> Result<Url> {
        let url = match SCHEMES.iter().find_map(|scheme| text.strip_prefix(scheme)) {
            Some(rest) => Url::of_uri(rest)?,
            None if text.contains("://") => bail!("a connection URI begins with postgres:// or postgresql://"),
            None => Url::of_keywords(text)?,
        };
        if let Some(secret) = SECRETS.iter().find(|keyword| url.get(keyword).is_some()) {
            bail!("{secret} would be seen in lists of processes, since libpq takes it from a connection string only");
        }
        Ok(url)
    }
}

impl fmt::Display for Url {
    fn fmt(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        let encoded = |text: &str| {
            text.replace('%', "%25").replace('/', "%2F").replace('@', "%40").replace('?', "%3F").replace(' ', "%20")
        };
        formatter.write_str("postgres://")?;
        if let Some(user) = self.get("user") {
            write!(formatter, "{}@", encoded(user))?;
        }
        let (hosts, ports) = (self.get("host").unwrap_or(""), self.get("port").unwrap_or(""));
        let mut ports = ports.split(',');
        let mut port = ports.next().unwrap_or("");
        for (index, host) in hosts.split(',').enumerate() {
            let host = if host.contains(':') { format!("[{host}]") } else { encoded(host) };
            let separator = if index == 0 { "" } else { "," };
            let colon = if port.is_empty() { "" } else { ":" };
            write!(formatter, "{separator}{host}{colon}{port}")?;
            // One port may stand for all hosts.
            port = ports.next().unwrap_or(port);
        }
        write!(formatter, "/{}", encoded(self.get("dbname").unwrap_or("")))?;
        let others =
            self.parameters.iter().filter(|(key, _)| !["user", "host", "port", "dbname"].contains(&key.as_str()));
        for (index, (key, value)) in others.enumerate() {
            write!(formatter, "{}{key}={}", if index == 0 { '?' } else { '&' }, encoded(value))?;
        }
        Ok(())
    }
}

impl fmt::Debug for Url {
    fn fmt(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uris_and_keywords_become_one_thing() {
        let uri: Url = "postgres://me:s%40crt@db.example:6432/shop?sslmode=require".parse().unwrap();
        assert_eq!(uri.conninfo(), "host=db.example port=6432 user=me dbname=shop sslmode=require");
        assert_eq!(uri.to_string(), "postgres://me@db.example:6432/shop?sslmode=require");
        assert_eq!(uri.password.as_deref(), Some("s@crt"));
        let words: Url =
            "host=db.example port = 6432 user='me' password='s@crt' dbname=shop sslmode=require".parse().unwrap();
        assert_eq!(words, uri);
        assert_eq!(uri.with_database("other").get("dbname"), Some("other"));
    }

    #[test]
    fn no_text_of_it_has_the_password() {
        let url: Url = "postgresql://me:hunter2@h/d".parse().unwrap();
        let mut command = Command::new("true");
        url.give_password(&mut command);
        for text in [url.to_string(), format!("{url:?}"), url.conninfo(), url.hide_password("no hunter2 here")] {
            assert!(!text.contains("hunter2"), "{text}");
        }
        assert!(command.get_envs().any(|(_, value)| value == Some("hunter2".as_ref())));
        let wrong = "mysql://me:hunter2@h/d".parse::<Url>().unwrap_err().to_string();
        assert!(!wrong.contains("hunter2"), "{wrong}");
    }

    #[test]
    fn several_hosts_pass_through() {
        let url: Url = "postgres://one:1,two:2/d?target_session_attrs=any".parse().unwrap();
        assert_eq!(url.conninfo(), "host=one,two port=1,2 dbname=d target_session_attrs=any");
        assert_eq!(url.to_string(), "postgres://one:1,two:2/d?target_session_attrs=any");
        assert_eq!(url.port(), 1);
        let six: Url = "postgres://[::1]:5433/d".parse().unwrap();
        assert_eq!((six.host(), six.port(), six.to_string()), (Some("::1"), 5433, "postgres://[::1]:5433/d".into()));
    }

    #[test]
    fn hosts_are_nodes_where_connections_are_spread() {
        let nodes = |text: &str| text.parse::<Url>().unwrap().nodes().iter().map(Url::conninfo).collect::<Vec<_>>();
        assert_eq!(
            nodes("postgres://one:1,two:2/d"),
            ["host=one,two port=1,2 dbname=d"],
            "one, and another if it is gone"
        );
        assert_eq!(
            nodes("postgres://me:secret@one:1,two:2/d?load_balance_hosts=random"),
            ["host=one port=1 user=me dbname=d", "host=two port=2 user=me dbname=d"]
        );
        assert_eq!(nodes("host=one,two port=7 load_balance_hosts=random"), ["host=one port=7", "host=two port=7"]);
        assert_eq!(nodes("hostaddr=::1,::2 load_balance_hosts=random"), ["hostaddr=::1", "hostaddr=::2"]);
        assert_eq!(nodes("dbname=d load_balance_hosts=random"), ["dbname=d"]);
        let cluster: Url = "postgres://me:secret@one,two/d?load_balance_hosts=random".parse().unwrap();
        assert!(cluster.nodes().iter().all(|node| node.password.as_deref() == Some("secret")));
        assert_eq!(cluster.first_node().host(), Some("one"));
    }

    #[test]
    fn what_libpq_would_refuse_is_refused() {
        for text in [
            "postgres://h:x/d",
            "postgres://h/%zz",
            "nonsense",
            "host='open",
            "postgres://[::1/d",
            "a=b\\",
            "host=h sslpassword=p",
        ] {
            assert!(text.parse::<Url>().is_err(), "{text}");
        }
    }

    #[test]
    fn values_are_quoted_where_needed() {
        let url: Url = r"dbname='it\'s a\\b' host=/var/run/postgresql".parse().unwrap();
        assert_eq!(url.get("dbname"), Some(r"it's a\b"));
        assert_eq!(url.conninfo().parse::<Url>().unwrap(), url);
        assert_eq!(url.to_string().parse::<Url>().unwrap().to_string(), url.to_string());
    }
}
