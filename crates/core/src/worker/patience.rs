//! How long servers may take that are to become clean.

use crate::time::Duration;

/// A server that is not clean this long after its client left is closed.
pub(super) const RECOVERY: Duration = Duration::from_secs(10);
/// Preparing statements again may take long, or wait for somebody's lock on a table: after so long it is cancelled, and they are prepared
/// when they are used.
pub(super) const PROOF_PATIENCE: Duration = Duration::from_millis(100);
