//! Passwords that a directory finds right, as `auth.c`'s `CheckLDAPAuth` of PostgreSQL 18 and PgBouncer 1.25.2 ask it.
//!
//! By the system's OpenLDAP library, as there: what its ldap.conf(5) says, about certificates above all, counts here too.

use std::ffi::{CStr, CString, c_char, c_int, c_long, c_ulong, c_void};
use std::net::{Shutdown, TcpStream, ToSocketAddrs};
use std::os::fd::{AsRawFd, IntoRawFd};
use std::ptr;
use std::sync::{OnceLock, mpsc};
use std::thread;
use std::time::Duration;

use libloading::Library;
use weir_core::outside::{Directory, Entry, Scope};

use super::library;

/// Of OpenLDAP 2.6, 2.5 and 2.4.
const LIBRARIES: [&str; 3] = ["libldap.so.2", "libldap-2.5.so.0", "libldap_r-2.4.so.2"];

const SUCCESS: c_int = 0;
const SIZE_LIMIT_EXCEEDED: c_int = 4;
const OPT_REFERRALS: c_int = 0x08;
const OPT_DIAGNOSTIC_MESSAGE: c_int = 0x32;
const OPT_TIMEOUT: c_int = 0x5002;
const OPT_PROTOCOL_VERSION: c_int = 0x11;
const VERSION_3: c_int = 3;
/// `LDAP_NO_ATTRS`
const NO_ATTRIBUTES: &CStr = c"1.1";
/// `LDAP_PROTO_TCP`
const TCP: c_int = 1;
/// For a connection to stand, and then for all that is asked on it.
const PATIENCE: Duration = Duration::from_secs(10);

type Handle = *mut c_void;

#[repr(C)]
struct Value {
    length: c_ulong,
    text: *const c_char,
}

#[repr(C)]
struct Time {
    seconds: c_long,
    microseconds: c_long,
}

type SaslBind = unsafe extern "C" fn(
    Handle,
    *const c_char,
    *const c_char,
    *const Value,
    *mut c_void,
    *mut c_void,
    *mut *mut c_void,
) -> c_int;
type Search = unsafe extern "C" fn(
    Handle,
    *const c_char,
    c_int,
    *const c_char,
    *const *const c_char,
    c_int,
    *mut c_void,
    *mut c_void,
    *const Time,
    c_int,
    *mut *mut c_void,
) -> c_int;

struct Ldap {
    initialize: unsafe extern "C" fn(c_int, c_int, *const c_char, *mut Handle) -> c_int,
    install_tls: unsafe extern "C" fn(Handle) -> c_int,
    set_option: unsafe extern "C" fn(Handle, c_int, *const c_void) -> c_int,
    get_option: unsafe extern "C" fn(Handle, c_int, *mut c_void) -> c_int,
    start_tls: unsafe extern "C" fn(Handle, *mut c_void, *mut c_void) -> c_int,
    bind: SaslBind,
    search: Search,
    count: unsafe extern "C" fn(Handle, *mut c_void) -> c_int,
    first: unsafe extern "C" fn(Handle, *mut c_void) -> *mut c_void,
    name_of: unsafe extern "C" fn(Handle, *mut c_void) -> *mut c_char,
    free: unsafe extern "C" fn(*mut c_void),
    free_answer: unsafe extern "C" fn(*mut c_void) -> c_int,
    unbind: unsafe extern "C" fn(Handle, *mut c_void, *mut c_void) -> c_int,
    error: unsafe extern "C" fn(c_int) -> *const c_char,
    domain_of: unsafe extern "C" fn(*const c_char, *mut *mut c_char) -> c_int,
    hosts_of: unsafe extern "C" fn(*const c_char, *mut *mut c_char) -> c_int,
    _library: Library,
}

impl Ldap {
    fn load() -> Result<Self, String> {
        let library = library::open(&LIBRARIES)?;
        // SAFETY: these are the types that ldap.h gives them.
        unsafe {
            Ok(Self {
                initialize: library::function(&library, "ldap_init_fd")?,
                install_tls: library::function(&library, "ldap_install_tls")?,
                set_option: library::function(&library, "ldap_set_option")?,
                get_option: library::function(&library, "ldap_get_option")?,
                start_tls: library::function(&library, "ldap_start_tls_s")?,
                bind: library::function(&library, "ldap_sasl_bind_s")?,
                search: library::function(&library, "ldap_search_ext_s")?,
                count: library::function(&library, "ldap_count_entries")?,
                first: library::function(&library, "ldap_first_entry")?,
                name_of: library::function(&library, "ldap_get_dn")?,
                free: library::function(&library, "ldap_memfree")?,
                free_answer: library::function(&library, "ldap_msgfree")?,
                unbind: library::function(&library, "ldap_unbind_ext_s")?,
                error: library::function(&library, "ldap_err2string")?,
                domain_of: library::function(&library, "ldap_dn2domain")?,
                hosts_of: library::function(&library, "ldap_domain2hostlist")?,
                _library: library,
            })
        }
    }

    fn words(&self, code: c_int) -> String {
        // SAFETY: any code has words, which the library keeps.
        unsafe { library::words((self.error)(code), code) }
    }

    fn did(&self, what: &str, code: c_int) -> Result<(), String> {
        if code == SUCCESS { Ok(()) } else { Err(format!("could not {what}: {}", self.words(code))) }
    }

    /// A text that the library has made, which ends with it.
    fn taken(&self, text: *mut c_char) -> Option<CString> {
        if text.is_null() {
            return None;
        }
        // SAFETY: it ends with a zero, and is ours to free.
        unsafe {
            let taken = CStr::from_ptr(text).to_owned();
            (self.free)(text.cast());
            Some(taken)
        }
    }

    /// The hosts that DNS has for the domain that an entry's name ends with, as a directory's own clients find it (RFC 2782).
    fn servers_of(&self, base: &str) -> Result<Vec<String>, String> {
        let (mut domain, mut hosts) = (ptr::null_mut(), ptr::null_mut());
        let base = text(base)?;
        // SAFETY: the library makes the text, or leaves none.
        self.did("find a domain in ldapbasedn", unsafe { (self.domain_of)(base.as_ptr(), &raw mut domain) })?;
        let domain = self.taken(domain).ok_or("ldapbasedn has no domain")?;
        // SAFETY: as above.
        self.did("find SRV records", unsafe { (self.hosts_of)(domain.as_ptr(), &raw mut hosts) })?;
        let hosts = self.taken(hosts).ok_or("there are no SRV records")?;
        Ok(hosts.to_string_lossy().split_ascii_whitespace().map(str::to_owned).collect())
    }
}

fn ldap() -> Result<&'static Ldap, String> {
    static LDAP: OnceLock<Result<Ldap, String>> = OnceLock::new();
    LDAP.get_or_init(Ldap::load).as_ref().map_err(Clone::clone)
}

/// Whether the library is there.
pub fn check() -> Result<(), String> {
    ldap().map(drop)
}

fn text(text: &str) -> Result<CString, String> {
    CString::new(text).map_err(|_| "a zero is in it".to_owned())
}

/// To the first of the servers that takes one, and as what it is known.
fn connect(servers: &[String]) -> Result<(TcpStream, &str), String> {
    let mut wrong = "no server is known".to_owned();
    for server in servers {
        let addresses = server.to_socket_addrs().map_err(|error| error.to_string());
        let connected = addresses.and_then(|addresses| {
            let mut wrong = "it has no address".to_owned();
            for address in addresses {
                match TcpStream::connect_timeout(&address, PATIENCE) {
                    Ok(stream) => return Ok(stream),
                    Err(error) => wrong = error.to_string(),
                }
            }
            Err(wrong)
        });
        match connected {
            Ok(stream) => return Ok((stream, server)),
            Err(error) => wrong = format!("could not connect to {server}: {error}"),
        }
    }
    Err(wrong)
}

/// Ends a connection that is still there after a time: the library's own limits do not hold for TLS's handshake.
struct Watch {
    _ends: mpsc::Sender<()>,
}

impl Watch {
    fn over(stream: TcpStream) -> Result<Self, String> {
        let (ends, ended) = mpsc::channel();
        let watch = move || {
            if ended.recv_timeout(PATIENCE) == Err(mpsc::RecvTimeoutError::Timeout) {
                let _ = stream.shutdown(Shutdown::Both);
            }
        };
        let started = thread::Builder::new().name("weir-ldap-watch".to_owned()).spawn(watch);
        started.map(|_| Self { _ends: ends }).map_err(|error| format!("no thread: {error}"))
    }
}

struct Connection {
    ldap: &'static Ldap,
    handle: Handle,
    _watch: Watch,
}

impl Drop for Connection {
    fn drop(&mut self) {
        // SAFETY: it is not used behind this.
        unsafe { (self.ldap.unbind)(self.handle, ptr::null_mut(), ptr::null_mut()) };
    }
}

impl Connection {
    fn new(ldap: &'static Ldap, servers: &[String], directory: &Directory) -> Result<Self, String> {
        let (stream, server) = connect(servers)?;
        let watch = Watch::over(stream.try_clone().map_err(|error| error.to_string())?)?;
        let scheme = if directory.ldaps { "ldaps" } else { "ldap" };
        let url = text(&format!("{scheme}://{server}"))?;
        let mut handle = ptr::null_mut();
        // SAFETY: the library puts a handle there, or none. The descriptor is the handle's from then on.
        let begun = unsafe { (ldap.initialize)(stream.as_raw_fd(), TCP, url.as_ptr(), &raw mut handle) };
        ldap.did("begin", begun)?;
        let _ = stream.into_raw_fd();
        let connection = Self { ldap, handle, _watch: watch };
        let version = VERSION_3;
        let patience = Time { seconds: PATIENCE.as_secs() as c_long, microseconds: 0 };
        // SAFETY: each option is of the type that ldap.h gives it, and copied.
        unsafe {
            let set = |option, value: *const c_void| ldap.did("set options", (ldap.set_option)(handle, option, value));
            set(OPT_PROTOCOL_VERSION, (&raw const version).cast())?;
            set(OPT_TIMEOUT, (&raw const patience).cast())?;
            // `LDAP_OPT_OFF`: the library would go to servers that nobody watches, nor has named.
            set(OPT_REFERRALS, ptr::null())?;
        }
        if directory.ldaps {
            // SAFETY: the handle is there, and its connection.
            connection.did("begin TLS", unsafe { (ldap.install_tls)(handle) })?;
        }
        if directory.start_tls {
            // SAFETY: the handle is there, and no controls are.
            let started = unsafe { (ldap.start_tls)(handle, ptr::null_mut(), ptr::null_mut()) };
            connection.did("start TLS", started)?;
        }
        Ok(connection)
    }

    /// With what the server, or TLS, says to it.
    fn did(&self, what: &str, code: c_int) -> Result<(), String> {
        let mut more: *mut c_char = ptr::null_mut();
        self.ldap.did(what, code).map_err(|wrong| {
            // SAFETY: the library puts a text there, or none, which is ours to free.
            unsafe { (self.ldap.get_option)(self.handle, OPT_DIAGNOSTIC_MESSAGE, (&raw mut more).cast()) };
            match self.ldap.taken(more) {
                Some(more) if !more.is_empty() => format!("{wrong}: {}", more.to_string_lossy()),
                _ => wrong,
            }
        })
    }

    fn bind(&self, name: &CStr, password: &str) -> Result<(), String> {
        let value = Value { length: password.len() as c_ulong, text: password.as_ptr().cast() };
        let none = ptr::null_mut();
        // SAFETY: no mechanism is a simple bind; nobody asks for what the server answers.
        let bound = unsafe {
            (self.ldap.bind)(self.handle, name.as_ptr(), ptr::null(), &raw const value, none, none, ptr::null_mut())
        };
        self.did(&format!("log in to the directory as \"{}\"", name.to_string_lossy()), bound)
    }

    /// The name of the only entry that there is.
    fn only(&self, base: &str, scope: Scope, filter: &str) -> Result<CString, String> {
        let ldap = self.ldap;
        let scope = match scope {
            Scope::Base => 0,
            Scope::One => 1,
            Scope::Subtree => 2,
        };
        let (base, wanted) = (text(base)?, text(filter)?);
        let attributes = [NO_ATTRIBUTES.as_ptr(), ptr::null()];
        let none = ptr::null_mut();
        let mut answer = ptr::null_mut();
        // SAFETY: the texts are there, the attributes end with none; the library puts an answer there, also beside an error.
        let found = unsafe {
            let (base, wanted, attributes) = (base.as_ptr(), wanted.as_ptr(), attributes.as_ptr());
            (ldap.search)(self.handle, base, scope, wanted, attributes, 0, none, none, ptr::null(), 2, &raw mut answer)
        };
        let answer = Answered { ldap, answer };
        if found != SIZE_LIMIT_EXCEEDED {
            self.did(&format!("search for \"{filter}\""), found)?;
        }
        // SAFETY: the answer is the handle's.
        match unsafe { (ldap.count)(self.handle, answer.answer) } {
            1 if found == SUCCESS => {
                // SAFETY: as above, and there is a first one.
                let name = unsafe { (ldap.name_of)(self.handle, (ldap.first)(self.handle, answer.answer)) };
                // One without a name would be nobody's: some servers let him in with any password.
                ldap.taken(name).filter(|name| !name.is_empty()).ok_or_else(|| "the entry has no name".to_owned())
            }
            0 => Err(format!("nothing is found for \"{filter}\"")),
            _ => Err(format!("more than one entry is found for \"{filter}\"")),
        }
    }
}

struct Answered {
    ldap: &'static Ldap,
    answer: *mut c_void,
}

impl Drop for Answered {
    fn drop(&mut self) {
        if !self.answer.is_null() {
            // SAFETY: it is ours to free, once.
            unsafe { (self.ldap.free_answer)(self.answer) };
        }
    }
}

pub fn check_password(directory: &Directory, user: &str, password: &str) -> Result<(), String> {
    let ldap = ldap()?;
    let found;
    let servers = match (&directory.servers[..], &directory.entry) {
        ([], Entry::Searched { base, .. }) => {
            found = ldap.servers_of(base)?;
            &found[..]
        }
        (servers, _) => servers,
    };
    let connect = || Connection::new(ldap, servers, directory);
    let name = match &directory.entry {
        Entry::Named { prefix, suffix } => text(&format!("{prefix}{user}{suffix}"))?,
        Entry::Searched { base, scope, filter, bind_name, bind_password } => {
            // They would be part of the filter; no user is called so.
            if user.contains(['*', '(', ')', '\\', '/']) {
                return Err("the user's name has a character that no directory is asked for".to_owned());
            }
            let connection = connect()?;
            connection.bind(&text(bind_name)?, &bind_password.0)?;
            connection.only(base, *scope, &filter.replace("$username", user))?
        }
    };
    // Another one: who searches has rights of his own.
    connect()?.bind(&name, password)
}
