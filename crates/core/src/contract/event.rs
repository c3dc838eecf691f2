//! What the program around the workers asks for, and what it should hear of.

use crate::id::ClientId;

/// Commands of signals and of the console that concern the whole process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Command {
    /// SIGHUP.
    Reload,
    /// SIGUSR1.
    Pause,
    /// SIGUSR2.
    Resume,
    /// SIGTERM: no new clients; exit when those that are here have left. A second one: at once.
    ShutdownWaitForClients,
    /// SIGINT: no new links; exit when no server is in use. A second one: at once.
    ShutdownWaitForServers,
    /// SIGQUIT.
    ShutdownNow,
    /// Another process listens in our place: clients go there as they can. Exit when those that are here have left.
    HandOver,
}

/// A setting of `[pgbouncer]` as the console's SET gives it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    pub key: String,
    pub value: String,
}

/// What has come of a RELOAD or SET: why nothing, or what of it is not in force yet.
pub type Reloaded = Result<Option<String>, String>;

/// What the program around the workers should hear of.
#[derive(Debug)]
pub enum Event {
    /// One line for the log. Holds no secret.
    Log { level: Level, text: String },
    /// RELOAD was asked for, by a signal or on the console, or SET there: read the files, or change that setting, hand `Settings` to every
    /// worker, then `ReloadDone` to this one.
    Reload { asker: Option<ClientId>, change: Option<Change> },
    /// Stop listening on the network; what is accepted stays, and Unix sockets are listened on to the end, for the console.
    StopListening,
    /// All is done: end the process.
    Exit,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    Debug,
    Info,
    Warning,
    Error,
}
