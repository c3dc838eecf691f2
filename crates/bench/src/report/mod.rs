//! From samples to pages: records, medians and ratios, targets, tables, charts, files.
//!
//! Knows the parts' descriptions, not how anything was measured.

pub mod chart;
pub mod document;
pub mod publish;
pub mod summary;
pub mod table;
pub mod targets;
