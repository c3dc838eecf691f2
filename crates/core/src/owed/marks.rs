//! What stands in [`Owed::statement`](super::Owed::statement) where that is no statement with a name.

/// Of a message about the unnamed statement.
pub(crate) const UNNAMED: u64 = u64::MAX;
/// Of a command that changes nothing of what is known of prepared statements, though its tag is that of
/// those that do: a DEALLOCATE of a name that is none of ours, a SET of a parameter that parsing does not read.
pub(crate) const HARMLESS: u64 = u64::MAX - 1;
/// Of what may close prepared statements and fail all the same: it commits before its last tag is sent, which then
/// never comes (`exec_simple_query`, src/backend/tcop/postgres.c at REL_18_0).
pub(crate) const MAY_CLOSE: u64 = u64::MAX - 2;
/// Of a portal that may be of any statement that has a name by then, or of the unnamed one.
pub(crate) const UNKNOWN_PORTAL: u64 = u64::MAX - 3;
/// As [`MAY_CLOSE`], of what closes all of them, and comes next.
pub(crate) const MAY_CLOSE_ALL: u64 = u64::MAX - 7;
/// Of a query of ours that sets parameters in a session which has such as its former client left there: they may be what it fails for.
pub(crate) const FORMER: u64 = u64::MAX - 4;
/// Of a Sync of ours that ends what its client has prepared without one: what that has written is committed, or refused.
pub(crate) const COMMITS: u64 = u64::MAX - 5;
/// Of a query of ours that begins a transaction which its client was told of already.
pub(crate) const BEGUN: u64 = u64::MAX - 6;
/// All other numbers from here on: so many commands come before what closes all.
pub(super) const MARKS: u64 = MAY_CLOSE_ALL - COMMANDS_MAX;

/// Commands in front of one that closes all statements which are counted.
const COMMANDS_MAX: u64 = 64 * 1024;

pub(crate) fn may_close_all_behind(commands: usize) -> u64 {
    MAY_CLOSE_ALL.saturating_sub(commands as u64).max(MARKS)
}

/// What stands there when one more command is complete.
pub(super) fn behind_command(mark: u64) -> u64 {
    if (MARKS..MAY_CLOSE_ALL).contains(&mark) { mark + 1 } else { mark }
}
