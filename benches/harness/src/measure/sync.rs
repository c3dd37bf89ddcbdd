//! What the disk takes for a sync: the gateway shows nothing before its sync has ended, and the limit does none.

use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::thread;
use std::time::Duration;

use crate::stats::Histogram;
use crate::{Outcome, clock};

/// What a small commit writes, about.
const BYTES: usize = 16 << 10;
const TIMES: u64 = 200;

/// Writes over a part of a file and syncs it, with this pause in between; the median, in microseconds.
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
