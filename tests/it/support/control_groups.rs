//! Control groups, as folders.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const END: Duration = Duration::from_secs(10);

/// Kills all processes in a group, and removes the group with all groups below.
pub(crate) fn end(folder: &Path) {
    let began = Instant::now();
    while folder.exists() && began.elapsed() < END {
        drop(std::fs::write(folder.join("cgroup.kill"), "1"));
        remove(folder);
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// A group without processes and groups can be removed.
fn remove(folder: &Path) {
    for child in below(folder) {
        remove(&child);
    }
    drop(std::fs::remove_dir(folder));
}

/// The groups directly below a group.
pub(crate) fn below(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .map(|entry| entry.path())
        .filter(|path| path.is_dir())
        .collect()
}
