//! The duration of a disk sync: the gateway shows an event only after its sync, and the physical limit does not sync.

use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::thread;
use std::time::Duration;

use crate::stats::Histogram;
use crate::{Outcome, clock};

/// The approximate size of a small commit.
const BYTES: usize = 16 << 10;
const TIMES: u64 = 200;

/// Overwrites a part of a file and syncs it repeatedly, with a pause. Returns the median in microseconds.
pub(super) fn measure(folder: &Path, pause: Duration) -> Outcome<f64> {
    fs::create_dir_all(folder)?;
    let path = folder.join("sync");
    let file = File::create(&path)?;
    let bytes = vec![1; BYTES];
    let at = |time: u64| time * BYTES as u64;
    for time in 0..TIMES {
        file.write_all_at(&bytes, at(time))?;
    }
    file.sync_all()?;
    let mut took = Histogram::new();
    for time in 0..TIMES {
        thread::sleep(pause);
        let begun = clock::now();
        file.write_all_at(&bytes, at(time))?;
        file.sync_data()?;
        took.add(clock::now() - begun);
    }
    fs::remove_file(&path)?;
    Ok(took.quantile(0.5))
}
