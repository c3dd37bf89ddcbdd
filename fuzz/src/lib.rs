//! What the fuzz targets do with an input, as plain functions: the tests replay the saved inputs with the same code.
//!
//! Each function panics when what the gateway makes of the input is not what a slow and simple model makes of it. It
//! uses no more of the gateway than is public, and nothing of the fuzzer.

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

/// What a target does with an input.
pub type Target = fn(&[u8]);

/// A target by the name of its folder of saved inputs.
pub const TARGETS: [(&str, Target); 7] = [
    ("framer", framer),
    ("envelope", envelope),
    ("sse", sse),
    ("ids", ids),
    ("cursors", cursors),
    ("paths", paths),
    ("pack", pack),
];
