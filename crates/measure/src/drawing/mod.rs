//! What charts are drawn with: a canvas of plain SVG, and scales from values to places.
//!
//! Knows no figures; the lab's reports and the benchmark's draw with it.

pub mod canvas;
pub mod scale;
