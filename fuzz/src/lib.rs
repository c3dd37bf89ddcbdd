//! The fuzz targets as plain functions, so that tests replay the saved inputs with the same code.
//!
//! Each function compares the gateway with a slow and simple model, and panics if they differ. It uses only
//! public items of the gateway, and nothing of the fuzzer.

mod cursors;
mod envelope;
mod framer;
mod ids;
mod input;
mod json;
mod pack;
mod paths;
mod sse;
pub mod whatwg;

pub use cursors::cursors;
pub use envelope::envelope;
pub use framer::framer;
pub use ids::ids;
pub use pack::pack;
pub use paths::paths;
pub use sse::sse;

/// A fuzz target: a function of the input.
pub type Target = fn(&[u8]);

/// The targets by the name of their directory of saved inputs.
pub const TARGETS: [(&str, Target); 7] = [
    ("framer", framer),
    ("envelope", envelope),
    ("sse", sse),
    ("ids", ids),
    ("cursors", cursors),
    ("paths", paths),
    ("pack", pack),
];
