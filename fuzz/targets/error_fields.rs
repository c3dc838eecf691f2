//! The fields of an ErrorResponse. What is found must be a field of the body, ended by its zero byte.
#![no_main]

use libfuzzer_sys::fuzz_target;
use weir_wire::backend::ErrorFields;
use weir_wire::report::Severity;
use weir_wire::{HEADER_LEN, write};

fuzz_target!(|body: &[u8]| {
    let Ok(fields) = ErrorFields::parse(body) else { return };
    for value in [fields.severity, fields.code, fields.message, fields.routine] {
        assert!(!value.contains(&0));
        assert!(value.is_empty() || body.windows(value.len() + 1).any(|window| &window[..value.len()] == value));
    }
    assert_eq!(fields.ends_session(), matches!(fields.severity, b"FATAL" | b"PANIC"));
    // One that names no severity at all gets none.
    if fields.severity.is_empty() {
        return;
    }
    let mut told_on = Vec::new();
    write::error_as(&mut told_on, Severity::Fatal, body);
    assert_eq!(ErrorFields::parse(&told_on[HEADER_LEN..]), Ok(ErrorFields { severity: b"FATAL", ..fields }));
});
