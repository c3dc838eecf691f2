//! What stands in [`Owed::statement`](super::Owed::statement) where that is no statement with a name.

/// Of a message about the unnamed statement.
pub(crate) const UNNAMED: u64 = u64::MAX;
/// Of a command that changes nothing of what is known of prepared statements, though its tag is that of
/// those that do: a DEALLOCATE of a name that is none of ours, a SET of a parameter that parsing does not read.
pub(crate) const HARMLESS: u64 = u64::MAX - 1;
/// Of what may close prepared statements and fail all the same: it commits before its tag is sent, which then
/// never comes (`exec_simple_query`, src/backend/tcop/postgres.c at REL_18_0).
pub(crate) const MAY_CLOSE: u64 = u64::MAX - 2;
/// The same of what closes all of them, if it comes so far.
pub(crate) const MAY_CLOSE_ALL: u64 = u64::MAX - 3;
