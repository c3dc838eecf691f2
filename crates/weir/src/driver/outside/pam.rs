//! Passwords that PAM finds right.
//!
//! By the system's own library (Linux-PAM's `_pam_types.h`), which a program has to use: its modules are of the machine.

use std::ffi::{CString, c_char, c_int, c_void};
use std::net::IpAddr;
use std::path::Path;
use std::ptr;
use std::sync::OnceLock;

use libloading::Library;

use super::library;

const SUCCESS: c_int = 0;
const BUFFER_ERROR: c_int = 5;
const CONVERSATION_ERROR: c_int = 19;
const PROMPT_ECHO_OFF: c_int = 1;
const REMOTE_HOST: c_int = 4;
const SILENT: c_int = 0x8000;
/// `PAM_MAX_NUM_MSG`
const MESSAGES_MAX: c_int = 32;

type Handle = *mut c_void;

#[repr(C)]
struct Message {
    style: c_int,
    text: *const c_char,
}

#[repr(C)]
struct Response {
    text: *mut c_char,
    code: c_int,
}

#[repr(C)]
struct Conversation {
    talk: unsafe extern "C" fn(c_int, *mut *const Message, *mut *mut Response, *mut c_void) -> c_int,
    data: *mut c_void,
}

type Start = unsafe extern "C" fn(*const c_char, *const c_char, *const Conversation, *mut Handle) -> c_int;
type StartFrom =
    unsafe extern "C" fn(*const c_char, *const c_char, *const Conversation, *const c_char, *mut Handle) -> c_int;

struct Pam {
    start: Start,
    /// Since Linux-PAM 1.4.
    start_from: Option<StartFrom>,
    set_item: unsafe extern "C" fn(Handle, c_int, *const c_void) -> c_int,
    authenticate: unsafe extern "C" fn(Handle, c_int) -> c_int,
    account: unsafe extern "C" fn(Handle, c_int) -> c_int,
    end: unsafe extern "C" fn(Handle, c_int) -> c_int,
    error: unsafe extern "C" fn(Handle, c_int) -> *const c_char,
    _library: Library,
}

impl Pam {
    fn load() -> Result<Self, String> {
        let library = library::open(&["libpam.so.0"])?;
        // SAFETY: these are the types that security/pam_appl.h gives them.
        unsafe {
            Ok(Self {
                start: library::function(&library, "pam_start")?,
                start_from: library::function(&library, "pam_start_confdir").ok(),
                set_item: library::function(&library, "pam_set_item")?,
                authenticate: library::function(&library, "pam_authenticate")?,
                account: library::function(&library, "pam_acct_mgmt")?,
                end: library::function(&library, "pam_end")?,
                error: library::function(&library, "pam_strerror")?,
                _library: library,
            })
        }
    }

    fn words(&self, handle: Handle, code: c_int) -> String {
        // SAFETY: any code has words, which the library keeps; it does not look at the handle.
        unsafe { library::words((self.error)(handle, code), code) }
    }
}

fn pam() -> Result<&'static Pam, String> {
    static PAM: OnceLock<Result<Pam, String>> = OnceLock::new();
    PAM.get_or_init(Pam::load).as_ref().map_err(Clone::clone)
}

/// Whether PAM is there.
pub fn check() -> Result<(), String> {
    pam().map(drop)
}

/// Answers each question that may not be shown with the password.
///
/// # Safety
/// As PAM calls it: with as many messages as it says, and `data` is the password's text.
unsafe extern "C" fn talk(
    count: c_int,
    messages: *mut *const Message,
    responses: *mut *mut Response,
    data: *mut c_void,
) -> c_int {
    if !(1..=MESSAGES_MAX).contains(&count) || messages.is_null() || responses.is_null() || data.is_null() {
        return CONVERSATION_ERROR;
    }
    // SAFETY: PAM frees it, and the texts in it, with free().
    let made = unsafe { libc::calloc(count as usize, size_of::<Response>()) }.cast::<Response>();
    if made.is_null() {
        return BUFFER_ERROR;
    }
    for at in 0..count as usize {
        // SAFETY: there are `count` of both. Linux-PAM hands in pointers to messages.
        let (message, response) = unsafe { (*messages.add(at), made.add(at)) };
        // SAFETY: it points to one.
        if !message.is_null() && unsafe { (*message).style } == PROMPT_ECHO_OFF {
            // SAFETY: `data` is a text that ends with a zero. Where there is no memory the answer is none, which is no password.
            unsafe { (*response).text = libc::strdup(data.cast()) };
        }
    }
    // SAFETY: PAM has room for one pointer there.
    unsafe { *responses = made };
    SUCCESS
}

pub fn check_password(service: &str, user: &str, password: &str, from: Option<IpAddr>) -> Result<(), String> {
    ask(service, user, password, from, None)
}

/// `services`: where they are described, in place of /etc/pam.d.
fn ask(service: &str, user: &str, password: &str, from: Option<IpAddr>, services: Option<&Path>) -> Result<(), String> {
    let pam = pam()?;
    let text = |text: &str| CString::new(text).map_err(|_| "a zero is in it".to_owned());
    let (service, user, password) = (text(service)?, text(user)?, text(password)?);
    let from = text(&from.map_or("unix".to_owned(), |ip| ip.to_string()))?;
    let conversation = Conversation { talk, data: password.as_ptr().cast_mut().cast() };
    let mut handle: Handle = ptr::null_mut();
    let started = match services {
        None => {
            // SAFETY: the texts and the conversation outlive the handle, which ends in this function.
            unsafe { (pam.start)(service.as_ptr(), user.as_ptr(), &raw const conversation, &raw mut handle) }
        }
        Some(services) => {
            let start = pam.start_from.ok_or("PAM is too old for services of ours")?;
            let services = text(&services.to_string_lossy())?;
            // SAFETY: as above.
            unsafe {
                start(service.as_ptr(), user.as_ptr(), &raw const conversation, services.as_ptr(), &raw mut handle)
            }
        }
    };
    if started != SUCCESS {
        return Err(format!("pam_start() failed: {}", pam.words(handle, started)));
    }
    // SAFETY: the handle was started, and this thread alone uses it until it ends.
    let (what, code) = unsafe {
        match (pam.set_item)(handle, REMOTE_HOST, from.as_ptr().cast()) {
            SUCCESS => match (pam.authenticate)(handle, SILENT) {
                // It may have expired, or not be for this time of day.
                SUCCESS => ("pam_acct_mgmt", (pam.account)(handle, SILENT)),
                code => ("pam_authenticate", code),
            },
            code => ("pam_set_item", code),
        }
    };
    let words = (code != SUCCESS).then(|| format!("{what}() failed: {}", pam.words(handle, code)));
    // SAFETY: it is not used behind this.
    unsafe { (pam.end)(handle, code) };
    words.map_or(Ok(()), Err)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn its_modules_are_asked_about_password_host_and_account() {
        let folder = tempfile::tempdir().unwrap();
        let script = folder.path().join("check");
        let text = "#!/bin/sh\nread -r password\n[ \"$PAM_USER:$password:$PAM_RHOST\" = \"ann:se cret:10.0.0.1\" ]\n";
        fs::write(&script, text).unwrap();
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
        let service = |account: &str| {
            let auth = format!("auth required pam_exec.so quiet expose_authtok {}\n", script.display());
            fs::write(folder.path().join("pgbouncer"), format!("{auth}account required {account}\n")).unwrap();
        };
        let from = Some(IpAddr::from([10, 0, 0, 1]));
        let asked = |user: &str, password: &str, from| ask("pgbouncer", user, password, from, Some(folder.path()));
        service("pam_permit.so");
        assert_eq!(asked("ann", "se cret", from), Ok(()));
        for (user, password, from) in
            [("bob", "se cret", from), ("ann", "secret", from), ("ann", "", from), ("ann", "se cret", None)]
        {
            let wrong = asked(user, password, from).unwrap_err();
            assert!(wrong.starts_with("pam_authenticate() failed: "), "{wrong}");
        }
        assert!(asked("ann\0", "se cret", from).is_err());
        service("pam_deny.so");
        let wrong = asked("ann", "se cret", from).unwrap_err();
        assert!(wrong.starts_with("pam_acct_mgmt() failed: "), "{wrong}");
        fs::remove_file(folder.path().join("pgbouncer")).unwrap();
        assert!(asked("ann", "se cret", from).is_err(), "nobody is let in by a service that is not there");
    }
}
