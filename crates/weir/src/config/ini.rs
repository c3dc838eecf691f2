//! PgBouncer's file format: sections, `key = value`, comments, `%include`.
//!
//! Owns the syntax (as libusual's `cfparser.c` reads it) and where each value stood. Does not know which sections and
//! keys exist, nor what their values mean: it gives back every entry in order, duplicates included.

use std::collections::BTreeSet;
use std::fs::Metadata;
use std::io::{self, Read};
use std::net::{IpAddr, Ipv4Addr};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::sys::socket::SockaddrStorage;
use weir_core::quoted;

use super::problem::{Place, Problems};

/// How deep `%include` may nest, as in PgBouncer (`MAX_INCLUDE` in libusual).
pub const INCLUDE_DEPTH_MAX: usize = 10;
/// The largest file that is read. A hundred thousand databases fit.
pub const FILE_BYTES_MAX: usize = 64 * 1024 * 1024;
/// How many files one configuration may consist of: nesting alone does not bound two includes on each level.
pub const FILES_MAX: usize = 1_000;

/// One `key = value` line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub section: Arc<str>,
    pub key: String,
    pub value: String,
    pub place: Place,
}

/// Where the text of files comes from: the file system, or a table in a test.
pub trait Source {
    fn read(&mut self, path: &str) -> io::Result<Vec<u8>>;
    /// The one name of a file however it is reached, to notice cycles.
    fn identity(&self, path: &str) -> String;
    /// The names of what is in a folder and no folder itself, in any order.
    fn names_in(&self, path: &str) -> io::Result<Vec<String>>;
    /// The machine's own addresses, with their masks; one of no bits stands for none.
    fn own_addresses(&self) -> io::Result<Vec<(IpAddr, IpAddr)>>;
}

/// How long a file must have been left alone to count as written. Who writes it in place empties it first.
const SETTLED_AFTER: Duration = Duration::from_millis(100);
/// How long is waited for that.
const SETTLED_WITHIN: Duration = Duration::from_secs(2);

/// Files of the operating system; relative paths are relative to the current directory, as in PgBouncer.
#[derive(Debug, Default)]
pub struct FileSystem {
    /// How long a file that is waited for must have been left alone, where one that somebody may still be writing is.
    settled_after: Option<Duration>,
}

impl FileSystem {
    /// Waits for files that somebody is writing.
    pub fn patient() -> Self {
        Self { settled_after: Some(SETTLED_AFTER) }
    }

    /// Who starts it may have it read a pipe. Later on nobody waits for what another process may never write.
    fn read_all(&self, path: &str, found: &Metadata) -> io::Result<Vec<u8>> {
        if self.settled_after.is_some() && !found.is_file() {
            return Err(io::Error::other("it is no regular file"));
        }
        let mut bytes = Vec::new();
        // Some have no length of their own: a device, or what another process writes on.
        std::fs::File::open(path)?.take(FILE_BYTES_MAX as u64 + 1).read_to_end(&mut bytes)?;
        if bytes.len() > FILE_BYTES_MAX { Err(too_long(bytes.len() as u64)) } else { Ok(bytes) }
    }
}

fn too_long(length: u64) -> io::Error {
    io::Error::other(format!("the file has {length} bytes, at most {FILE_BYTES_MAX} are read"))
}

impl Source for FileSystem {
    fn read(&mut self, path: &str) -> io::Result<Vec<u8>> {
        let deadline = Instant::now() + SETTLED_WITHIN;
        loop {
            let before = std::fs::metadata(path)?;
            let length = before.len();
            if length > FILE_BYTES_MAX as u64 {
                return Err(too_long(length));
            }
            // A time in the future is another machine's: it tells nothing.
            let age = before.modified().ok().and_then(|at| at.elapsed().ok());
            let settled_after = self.settled_after.filter(|_| before.is_file());
            let missing = settled_after.and_then(|after| after.checked_sub(age?)).filter(|missing| !missing.is_zero());
            if missing.is_none() {
                let bytes = self.read_all(path, &before)?;
                if settled_after.is_none() || is_same(&before, &std::fs::metadata(path)?) {
                    return Ok(bytes);
                }
            }
            if Instant::now() >= deadline {
                return Err(io::Error::other("somebody is writing it"));
            }
            let pause = missing.or(settled_after).unwrap_or_default();
            std::thread::sleep(pause.min(deadline.saturating_duration_since(Instant::now())));
        }
    }

    fn identity(&self, path: &str) -> String {
        let path = Path::new(path);
        std::fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf()).to_string_lossy().into_owned()
    }

    fn names_in(&self, path: &str) -> io::Result<Vec<String>> {
        let entries = std::fs::read_dir(path)?.collect::<io::Result<Vec<_>>>()?;
        // What cannot be looked at is for whoever reads it to say.
        let files = entries.iter().filter(|entry| !entry.path().is_dir());
        Ok(files.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect())
    }

    fn own_addresses(&self) -> io::Result<Vec<(IpAddr, IpAddr)>> {
        let ip = |address: Option<SockaddrStorage>| {
            let address = address?;
            let v4 = address.as_sockaddr_in().map(|v4| IpAddr::V4(v4.ip()));
            v4.or_else(|| address.as_sockaddr_in6().map(|v6| IpAddr::V6(v6.ip())))
        };
        let interfaces = nix::ifaddrs::getifaddrs()?;
        let with_mask = |address: IpAddr, mask| (address, ip(mask).unwrap_or(Ipv4Addr::UNSPECIFIED.into()));
        Ok(interfaces.filter_map(|interface| Some(with_mask(ip(interface.address)?, interface.netmask))).collect())
    }
}

fn is_same(one: &Metadata, other: &Metadata) -> bool {
    let identity = |file: &Metadata| (file.dev(), file.ino(), file.len(), file.mtime(), file.mtime_nsec());
    identity(one) == identity(other)
}

/// What files say.
#[derive(Debug, Clone, Default)]
pub struct Text {
    pub entries: Vec<Entry>,
    /// Every section that is there, entries or none.
    pub sections: BTreeSet<Arc<str>>,
}

/// Reads a file and what it includes.
pub fn parse(path: &str, source: &mut dyn Source, problems: &mut Problems) -> Text {
    let mut parser =
        Parser { source, problems, text: Text::default(), section: None, open_files: Vec::new(), files_count: 0 };
    parser.file(path, None);
    parser.text
}

struct Parser<'a> {
    source: &'a mut dyn Source,
    problems: &'a mut Problems,
    text: Text,
    /// An included file begins in the section it is included from, and what follows goes on in the one it ended in.
    section: Option<Arc<str>>,
    /// The identities of the files being read, outermost first.
    open_files: Vec<String>,
    files_count: usize,
}

impl Parser<'_> {
    fn file(&mut self, path: &str, included_from: Option<&Place>) {
        let name: Arc<str> = path.into();
        let whole = Place::new(&name, 0);
        let blamed = included_from.unwrap_or(&whole);
        let identity = self.source.identity(path);
        if let Some(refusal) = self.refuses(path, &identity) {
            return self.problems.error(blamed, refusal);
        }
        let bytes = match self.source.read(path) {
            Ok(bytes) => bytes,
            Err(error) => return self.problems.error(blamed, format!("could not read file \"{path}\": {error}")),
        };
        self.files_count += 1;
        self.open_files.push(identity);
        for (index, line) in bytes.split(|byte| *byte == b'\n').enumerate() {
            let place = Place::new(&name, line_number(index));
            match std::str::from_utf8(line) {
                Ok(text) => self.line(text.trim_start_matches('\u{feff}'), &place),
                Err(_) => self.problems.error(&place, "the line is not valid UTF-8"),
            }
        }
        self.open_files.pop();
    }

    fn refuses(&self, path: &str, identity: &str) -> Option<String> {
        if self.open_files.iter().any(|open| open == identity) {
            return Some(format!("file \"{path}\" includes itself"));
        }
        if self.open_files.len() > INCLUDE_DEPTH_MAX {
            return Some(format!("%include is nested more than {INCLUDE_DEPTH_MAX} deep"));
        }
        if self.files_count >= FILES_MAX {
            return Some(format!("more than {FILES_MAX} files are included"));
        }
        None
    }

    fn line(&mut self, line: &str, place: &Place) {
        let line = line.trim();
        if line.is_empty() || line.starts_with([';', '#']) {
            return;
        }
        let result = match line.as_bytes()[0] {
            b'%' => self.directive(line, place),
            b'[' => self.section(line),
            _ => self.pair(line, place),
        };
        if let Err(text) = result {
            self.problems.error(place, text);
        }
    }

    fn directive(&mut self, line: &str, place: &Place) -> Result<(), String> {
        let path = line.strip_prefix("%include").filter(|rest| rest.starts_with([' ', '\t'])).map(str::trim);
        match path {
            Some(path) if !path.is_empty() => {
                self.file(path, Some(place));
                Ok(())
            }
            _ => Err("expected \"%include FILE\"".to_owned()),
        }
    }

    fn section(&mut self, line: &str) -> Result<(), String> {
        let (name, rest) = line[1..].split_once(']').ok_or("a section header needs a closing \"]\"")?;
        let section: Arc<str> = name.trim().into();
        self.text.sections.insert(section.clone());
        self.section = Some(section);
        if rest.trim().is_empty() {
            return Ok(());
        }
        Err(format!("nothing may follow section header \"[{}]\" on its line", name.trim()))
    }

    fn pair(&mut self, line: &str, place: &Place) -> Result<(), String> {
        let (key, rest) = split_key(line)?;
        let value = rest
            .trim_start()
            .strip_prefix('=')
            .ok_or_else(|| format!("expected \"=\" after \"{key}\""))?
            .trim()
            .to_owned();
        let section = self.section.clone().ok_or_else(|| {
            format!("\"{key}\" stands before any section: put it under [pgbouncer], [databases] or [users]")
        })?;
        self.text.entries.push(Entry { section, key, value, place: place.clone() });
        Ok(())
    }
}

/// Lines count from 1.
fn line_number(index: usize) -> u32 {
    u32::try_from(index).unwrap_or(u32::MAX - 1).saturating_add(1)
}

/// A bare name of letters, digits and `_.-*`, or any name in quotes, where a doubled quote stands for one.
fn split_key(line: &str) -> Result<(String, &str), String> {
    for quote in ['"', '\''] {
        if let Some(rest) = line.strip_prefix(quote) {
            return quoted(rest, quote)
                .filter(|(name, _)| !name.is_empty())
                .ok_or_else(|| format!("a quoted name needs a closing {quote} and at least one character"));
        }
    }
    let end = line.find(|c: char| !(c.is_ascii_alphanumeric() || "_.-*".contains(c))).unwrap_or(line.len());
    if end == 0 {
        return Err("expected \"key = value\", a section, or a comment; names with other characters than letters, \
            digits and _.-* need \
                    double quotes"
            .to_owned());
    }
    Ok((line[..end].to_owned(), &line[end..]))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::collections::HashMap;

    /// Files in memory.
    #[derive(Debug, Default)]
    pub(crate) struct Table(pub HashMap<String, Vec<u8>>);

    impl Table {
        pub(crate) fn of(files: &[(&str, &str)]) -> Self {
            Self(files.iter().map(|(name, text)| ((*name).to_owned(), text.as_bytes().to_vec())).collect())
        }
    }

    /// Files of these pieces, at random.
    pub(crate) fn arbitrary(pieces: &[&'static str]) -> impl Iterator<Item = String> {
        let mut state = 88_172_645_463_325_252_u64;
        let mut piece = move || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            pieces[(state % pieces.len() as u64) as usize]
        };
        (0..2_000).map(move |_| (0..30).map(|_| piece()).collect())
    }

    impl Source for Table {
        fn read(&mut self, path: &str) -> io::Result<Vec<u8>> {
            self.0.get(path).cloned().ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
        }

        fn identity(&self, path: &str) -> String {
            path.to_owned()
        }

        fn names_in(&self, path: &str) -> io::Result<Vec<String>> {
            let names = self.0.keys().filter_map(|name| name.strip_prefix(path)?.strip_prefix('/'));
            let names: Vec<String> = names.map(str::to_owned).collect();
            if names.is_empty() { Err(io::ErrorKind::NotFound.into()) } else { Ok(names) }
        }

        fn own_addresses(&self) -> io::Result<Vec<(IpAddr, IpAddr)>> {
            let whole = [("127.0.0.1", "255.0.0.0"), ("192.0.2.7", "255.255.255.0"), ("fd00::7", "ffff::")];
            let pairs = whole.into_iter().chain([("10.99.0.1", "0.0.0.0"), ("fd01::7", "::"), ("fd02::7", "0.0.0.0")]);
            Ok(pairs.map(|(address, mask)| (address.parse().unwrap(), mask.parse().unwrap())).collect())
        }
    }

    fn read(files: &[(&str, &str)]) -> (Vec<String>, Vec<String>) {
        let mut problems = Problems::default();
        let text = parse("a.ini", &mut Table::of(files), &mut problems);
        let entries =
            text.entries.iter().map(|e| format!("{} [{}] {}={}", e.place, e.section, e.key, e.value)).collect();
        (entries, problems.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn a_reload_waits_for_no_pipe_and_nothing_is_read_without_end() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe").display().to_string();
        nix::unistd::mkfifo(pipe.as_str(), nix::sys::stat::Mode::S_IRWXU).unwrap();
        for path in [pipe.as_str(), "/dev/zero"] {
            let error = FileSystem::patient().read(path).unwrap_err();
            assert_eq!(error.to_string(), "it is no regular file", "{path}");
        }
        let error = FileSystem::default().read("/dev/zero").unwrap_err();
        assert!(error.to_string().ends_with("at most 67108864 are read"), "{error}");
        // Whoever starts it may have made a pipe for it.
        let writer = std::thread::spawn({
            let pipe = pipe.clone();
            move || std::fs::write(pipe, "[pgbouncer]\n")
        });
        assert_eq!(FileSystem::default().read(&pipe).unwrap(), b"[pgbouncer]\n");
        writer.join().unwrap().unwrap();
    }

    #[test]
    fn folders_in_a_folder_are_not_named() {
        let folder = std::env::temp_dir().join(format!("weir-ini-{}", std::process::id()));
        std::fs::create_dir_all(folder.join("b.conf")).unwrap();
        std::fs::write(folder.join("a.conf"), "").unwrap();
        std::os::unix::fs::symlink("nowhere", folder.join("c.conf")).unwrap();
        let mut names = FileSystem::default().names_in(folder.to_str().unwrap()).unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
        names.sort();
        assert_eq!(names, ["a.conf", "c.conf"]);
    }

    #[test]
    fn good_files() {
        for (text, expected) in [
            ("", &[][..]),
            ("; c\n  # c\n\n[s]\nk=v", &["a.ini:5 [s] k=v"]),
            ("[s]\r\n k \t=\t v w ;# \r\n", &["a.ini:2 [s] k=v w ;#"]),
            ("[s]\nk=\nk=2", &["a.ini:2 [s] k=", "a.ini:3 [s] k=2"]),
            (
                "[d]\n* = host=a\n\"a \"\"b\"\" = c\" = x\n'q r' = y",
                &["a.ini:2 [d] *=host=a", "a.ini:3 [d] a \"b\" = c=x", "a.ini:4 [d] q r=y"],
            ),
            ("\u{feff}[s]\na.b-c_1 = é", &["a.ini:2 [s] a.b-c_1=é"]),
        ] {
            let (entries, problems) = read(&[("a.ini", text)]);
            assert_eq!(problems, Vec::<String>::new(), "{text:?}");
            assert_eq!(entries, expected, "{text:?}");
        }
    }

    #[test]
    fn bad_lines_are_all_named_and_the_rest_is_read() {
        let text = "k = before\n[s\n[s] x\nk\n= v\n\"open = 1\n\"\" = 1\n%includ x\n%include \nlast = 1";
        let (entries, problems) = read(&[("a.ini", text)]);
        assert_eq!(entries, ["a.ini:10 [s] last=1"]);
        assert_eq!(
            problems,
            [
                "a.ini:1: error: \"k\" stands before any section: put it under [pgbouncer], [databases] or [users]",
                "a.ini:2: error: a section header needs a closing \"]\"",
                "a.ini:3: error: nothing may follow section header \"[s]\" on its line",
                "a.ini:4: error: expected \"=\" after \"k\"",
                "a.ini:5: error: expected \"key = value\", a section, or a comment; names with other characters than \
                 letters, digits and _.-* \
                 need double quotes",
                "a.ini:6: error: a quoted name needs a closing \" and at least one character",
                "a.ini:7: error: a quoted name needs a closing \" and at least one character",
                "a.ini:8: error: expected \"%include FILE\"",
                "a.ini:9: error: expected \"%include FILE\"",
            ]
        );
    }

    #[test]
    fn includes_share_the_section_and_keep_their_places() {
        let (entries, problems) = read(&[("a.ini", "[s]\n%include b.ini\nz=1"), ("b.ini", "x=1\n[t]\ny=1")]);
        assert_eq!(entries, ["b.ini:1 [s] x=1", "b.ini:3 [t] y=1", "a.ini:3 [t] z=1"]);
        assert_eq!(problems, Vec::<String>::new());
    }

    #[test]
    fn includes_that_cannot_be_followed() {
        let (_, problems) = read(&[("a.ini", "%include b.ini\n%include none.ini"), ("b.ini", "\n%include a.ini")]);
        assert_eq!(
            problems,
            [
                "b.ini:2: error: file \"a.ini\" includes itself",
                "a.ini:2: error: could not read file \"none.ini\": entity not found",
            ]
        );
    }

    #[test]
    fn includes_nest_ten_deep_and_no_deeper() {
        let names: Vec<String> = (0..12).map(|n| if n == 0 { "a.ini".to_owned() } else { n.to_string() }).collect();
        let texts: Vec<String> = (1..13).map(|n| format!("[s]\n%include {n}")).collect();
        let files: Vec<(&str, &str)> = names.iter().map(String::as_str).zip(texts.iter().map(String::as_str)).collect();
        let (_, problems) = read(&files);
        assert_eq!(problems, ["10:2: error: %include is nested more than 10 deep"]);
    }

    #[test]
    fn arbitrary_bytes_never_panic() {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let alphabet = b"[]\"'=%;# \n\r\tinclude *a.\xff\xc3\xa9\0";
        for _ in 0..20_000 {
            let mut bytes = Vec::new();
            for _ in 0..(state % 40) {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                bytes.push(alphabet[(state % alphabet.len() as u64) as usize]);
            }
            state = state.wrapping_add(0x2545_f491_4f6c_dd1d);
            let mut source = Table(HashMap::from([("a.ini".to_owned(), bytes)]));
            parse("a.ini", &mut source, &mut Problems::default());
        }
    }

    /// An editor, or `cat >`, empties a file before it fills it, and a reload may come in between.
    #[test]
    fn a_file_that_is_being_written_is_waited_for() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.ini").to_str().unwrap().to_owned();
        // Longer than a busy machine takes between two writes.
        let settled_after = Duration::from_secs(1);
        let mut source = FileSystem { settled_after: Some(settled_after) };
        std::fs::write(&path, "").unwrap();
        let writer = std::thread::spawn({
            let path = path.clone();
            move || {
                for text in ["[databases]\n", "[databases]\na = host=b\n"] {
                    std::thread::sleep(Duration::from_millis(30));
                    std::fs::write(&path, text).unwrap();
                }
            }
        });
        assert_eq!(source.read(&path).unwrap(), b"[databases]\na = host=b\n");
        writer.join().unwrap();
        let began = Instant::now();
        source.read(&path).unwrap();
        assert!(began.elapsed() < settled_after, "what is settled is read at once");
        assert!(FileSystem::default().read(&path).is_ok());
    }

    #[test]
    fn a_file_that_is_written_without_end_is_said() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.ini").to_str().unwrap().to_owned();
        std::fs::write(&path, "x").unwrap();
        // Nobody is that patient: for the reader, one write is as good as one after the other.
        let error = FileSystem { settled_after: Some(Duration::MAX) }.read(&path).unwrap_err();
        assert_eq!(error.to_string(), "somebody is writing it");
    }
}
