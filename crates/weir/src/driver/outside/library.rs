//! Libraries of the system's that are looked for when they are needed: Weir starts without them where nobody asks for what they do.

use std::ffi::{CStr, c_char, c_int};

use libloading::Library;

/// The first that is there.
pub fn open(names: &[&str]) -> Result<Library, String> {
    let mut first = None;
    for name in names {
        // SAFETY: what these libraries run when they are loaded is made for any program.
        match unsafe { Library::new(*name) } {
            Ok(library) => return Ok(library),
            Err(error) => {
                first.get_or_insert(error);
            }
        }
    }
    Err(first.map_or_else(String::new, |error| error.to_string()))
}

/// What a library says of an error.
///
/// # Safety
/// It is none, or a text that ends with a zero and is still there.
pub unsafe fn words(text: *const c_char, code: c_int) -> String {
    if text.is_null() {
        return format!("error {code}");
    }
    // SAFETY: as the caller says.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

/// A function of it, which has to be of the type `F`, and may be called as long as the library is there.
///
/// # Safety
/// The function has that type.
pub unsafe fn function<F: Copy>(library: &Library, name: &str) -> Result<F, String> {
    // SAFETY: as the caller says.
    unsafe { library.get::<F>(name) }.map(|function| *function).map_err(|error| error.to_string())
}
