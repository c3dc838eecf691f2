//! Bytes and messages of the PostgreSQL protocol.
