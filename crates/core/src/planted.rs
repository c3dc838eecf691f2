//! Bugs planted on purpose, in builds that test whether the simulator would notice. Never in a build that serves.

/// A law broken on purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Planted {
    /// Gives a server to the next client while a transaction is open on it.
    ShareServer,
    /// Keeps a reply from its client now and then.
    DropReply,
    /// Gives a server away while a cancel request is still on its way to it.
    LateCancel,
    /// Forgets to give back the permit of a closed server now and then.
    LeakPermit,
    /// Leaves a waiting client asleep when a server becomes free, now and then.
    MissWakeup,
    /// Takes the Syncs ahead of the end of a failed copy for ignored, though PostgreSQL may answer some.
    MiscountSyncs,
    /// Takes the unnamed statement that was sent last for the server's, though its batch may have failed.
    BelieveUnnamed,
    /// Shares prepared statements by their texts, whatever the parameters that parsing reads.
    ShareAcrossParameters,
    /// Leaves a server's copy of a statement as it is when a client prepares the same text, whatever its tables are by now.
    KeepOldCopy,
    /// Takes the parameters that PostgreSQL does not report for unchanged where no command tag tells of a change.
    BelieveTags,
    /// Keeps to itself what PostgreSQL tells behind a query of ours.
    KeepReports,
    /// Overlooks the advisory locks that a client has left in its session.
    OverlookLocks,
    /// Goes on with the limits on servers that were there before a reload.
    KeepLimits,
    /// Has a client's own server tell what it listens to also where the pool's listener does.
    HearTwice,
    /// Sends what has a key to another node than its owner.
    MissOwner,
    /// Sends what only the coordinator does to any node.
    SpreadAll,
    /// Keeps to itself the BEGIN that it has answered.
    LoseBegin,
    /// Begins a transaction and forgets what its client has said of it.
    ForgetModes,
    /// Ends an empty transaction in words, and begins it with the next one's statement.
    KeepBegun,
    /// Takes names for what they were when a client makes a table.
    OverlookTables,
    /// Reads a cluster's catalogue once and for all.
    KeepTopology,
}

impl Planted {
    pub const ALL: [Self; 21] = [
        Self::ShareServer,
        Self::DropReply,
        Self::LateCancel,
        Self::LeakPermit,
        Self::MissWakeup,
        Self::MiscountSyncs,
        Self::BelieveUnnamed,
        Self::ShareAcrossParameters,
        Self::KeepOldCopy,
        Self::BelieveTags,
        Self::KeepReports,
        Self::OverlookLocks,
        Self::KeepLimits,
        Self::HearTwice,
        Self::MissOwner,
        Self::SpreadAll,
        Self::LoseBegin,
        Self::ForgetModes,
        Self::KeepBegun,
        Self::OverlookTables,
        Self::KeepTopology,
    ];
}
