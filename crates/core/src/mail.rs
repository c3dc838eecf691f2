//! What workers say to each other.

/// One message between workers; its content is core's own affair, drivers only carry it.
#[derive(Debug)]
pub enum Mail {}
