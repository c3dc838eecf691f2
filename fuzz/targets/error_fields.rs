//! The fields of an ErrorResponse. What is found must be a field of the body, ended by its zero byte.
#![no_main]

use libfuzzer_sys::fuzz_target;
use weir_wire::backend::ErrorFields;

fuzz_target!(|body: &[u8]| {
    let Ok(fields) = ErrorFields::parse(body) else { return };
    for value in [fields.severity, fields.code, fields.message, fields.routine] {
        assert!(!value.contains(&0));
        assert!(value.is_empty() || body.windows(value.len() + 1).any(|window| &window[..value.len()] == value));
    }
    assert_eq!(fields.ends_session(), matches!(fields.severity, b"FATAL" | b"PANIC"));
});
