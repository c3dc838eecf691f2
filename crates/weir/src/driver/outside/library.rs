//! Libraries of the system's that are looked for when they are needed: Weir starts without them where nobody asks for what they do.

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

/// A function of it, which has to be of the type `F`, and may be called as long as the library is there.
///
/// # Safety
/// The function has that type.
pub unsafe fn function<F: Copy>(library: &Library, name: &str) -> Result<F, String> {
    // SAFETY: as the caller says.
    unsafe { library.get::<F>(name) }.map(|function| *function).map_err(|error| error.to_string())
}
