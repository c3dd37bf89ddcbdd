//! Faults of the disk: the files after a stop of the machine, failing calls, and their effect on clients.
//! `tests/store_faults/disk.c` is loaded before libc. It records each write, and lets calls fail or wait.

use std::path::Path;

use base::types::SessionId;

use crate::support::{Gateway, Setup};

mod calls;
mod crash;
mod damage;
mod disk;
mod failing;
mod full;
pub(crate) mod migration;
mod script;
mod slow;
mod states;
mod torn;
mod transfer;

use disk::Disk;

/// The store's file in a gateway's folder.
pub(crate) const LOG: &str = "data/private/log.sqlite";
/// The tests ask more often than a person may.
const LIMITS: &str = "limits.per_key.max_requests_per_minute = 100000\nlimits.per_key.max_prompts_per_minute = 100000\nlimits.per_key.max_live_sessions = 200\n";

/// A gateway, and the disk that its store is on.
fn on_disk(setup: Setup) -> (Gateway, Disk) {
    let mut disk = None;
    let gateway = setup.start_with(|folder: &Path| {
        let folder = folder.canonicalize().expect("it is there");
        disk.insert(Disk::of(&folder.join(LOG))).environment()
    });
    (gateway, disk.expect("it was made with the gateway"))
}

/// The first stored bytes of the run that contains an event of a session. They are on one page, and no other run has
/// the same bytes.
fn beginning(path: &Path, session: &str, seq: u64) -> Vec<u8> {
    let session: SessionId = session.parse().expect("an id");
    let file = rusqlite::Connection::open(path).expect("the log");
    let select = "SELECT substr(frames, 1, 200) FROM run WHERE session = ?1 AND first_seq <= ?2 AND last_seq >= ?2";
    let run = rusqlite::params![session.as_bytes(), i64::try_from(seq).expect("it is small")];
    file.query_row(select, run, |row| row.get(0))
        .expect("there is one")
}

#[test]
fn the_bundled_sqlite_has_the_fix_of_its_write_ahead_log() {
    // Up to 3.51.2 two connections that wrote and moved the log at the same moment could damage the file.
    assert!(
        rusqlite::version_number() >= 3_051_003,
        "{}",
        rusqlite::version()
    );
}
