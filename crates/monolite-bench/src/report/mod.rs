//! What a run leaves behind: the record, and the tables made from it.

pub mod names;
pub mod record;

pub mod matrix;
pub mod render;
pub mod summary;
pub mod tables;

pub mod files;
