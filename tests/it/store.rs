//! Faults of the disk: what a machine that stops leaves in the store's files, calls that fail, and what clients see of
//! it. `tests/store_faults/disk.c`, put before libc, writes down each write and lets calls fail or wait.

use std::path::Path;

use crate::support::{Gateway, Setup};

mod calls;
mod crash;
mod damage;
mod disk;
mod failing;
mod full;
mod script;
mod slow;
mod states;
mod torn;

use disk::Disk;

/// The store's file in a gateway's folder.
const LOG: &str = "data/private/log.sqlite";
/// The tests ask more often than a person may.
const LIMITS: &str = "requests_per_minute = 100000\nprompts_per_minute = 100000\nlive_sessions = 200\n";

/// A gateway, and the disk that its store is on.
fn on_disk(setup: Setup) -> (Gateway, Disk) {
    let mut disk = None;
    let gateway = setup.start_with(|folder: &Path| {
        let folder = folder.canonicalize().expect("it is there");
        disk.insert(Disk::of(&folder.join(LOG))).environment()
    });
    (gateway, disk.expect("it was made with the gateway"))
}

#[test]
fn the_bundled_sqlite_has_the_fix_of_its_write_ahead_log() {
    // Up to 3.51.2 two connections that wrote and moved the log at the same moment could damage the file.
    assert!(rusqlite::version_number() >= 3_051_003, "{}", rusqlite::version());
}
