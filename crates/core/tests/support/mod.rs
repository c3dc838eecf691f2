//! What conversations are made of: see `conversations/README.md` for how they are written.

pub mod always;
pub mod backend;
pub mod driver;
pub mod frontend;
pub mod login;
pub mod outside;
pub mod peer;
pub mod play;
pub mod scram;
pub mod script;
pub mod settings;
pub mod words;
pub mod world;
