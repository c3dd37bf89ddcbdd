//! The bounds of baselines and comparisons.

use std::time::Duration;

/// The bounds of a baseline, and of a comparison with it.
#[derive(Debug, Clone, Copy)]
pub struct ChangeBounds {
    /// The maximum number of names that a walk visits.
    pub max_names: usize,
    /// The maximum number of bytes of their paths.
    pub max_path_bytes: usize,
    /// The maximum size of a file whose content is stored or compared, in bytes.
    pub max_file_bytes: u64,
    /// The maximum number of bytes of all contents that a baseline adds to the disk, before their compression.
    pub max_new_bytes: u64,
    /// How long a baseline reads contents. After that it records only metadata.
    pub content_time: Duration,
    /// The maximum time of a walk.
    pub walk_time: Duration,
    /// The maximum number of files in the result of a comparison.
    pub max_changes: usize,
    /// The maximum time for reading the contents of changed files, to count their lines.
    pub count_time: Duration,
}

impl Default for ChangeBounds {
    fn default() -> Self {
        Self {
            max_names: 50_000,
            max_path_bytes: 16 << 20,
            max_file_bytes: 1 << 20,
            max_new_bytes: 64 << 20,
            content_time: Duration::from_secs(2),
            walk_time: Duration::from_secs(3),
            max_changes: 500,
            count_time: Duration::from_secs(1),
        }
    }
}
