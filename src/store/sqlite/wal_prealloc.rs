//! Preallocation of the write-ahead log. If a write extends a file, the next sync also waits for the file
//! system's journal, which takes about as long as writing the data.

use std::fs::{File, OpenOptions};
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rusqlite::Connection;
use rusqlite::hooks::Wal;

use super::connection::{FRAME_BYTES, RESTART_PAGES, with_suffix};
use super::error::OpenError;

const HEADER: u64 = 32;
/// The minimum growth. The commit that causes the growth waits until all of it is on the disk.
const MIN_GROWTH: u64 = 512 << 10;
/// The maximum growth for one commit.
const MAX_GROWTH: u64 = 4 << 20;
/// Inner pages of the trees that a commit also writes.
const SLACK: u64 = 8 * FRAME_BYTES;
/// No preallocation beyond this size, at which commits wait for a restart of the log.
const MAX_PREALLOCATED: u64 = RESTART_PAGES * FRAME_BYTES;

/// The write-ahead log of the connection that commits. Only the written length is kept: the idle checkpoint
/// may truncate the file, and a commit may restart the log.
#[derive(Debug)]
pub(super) struct WalPrealloc {
    file: File,
    written: Arc<AtomicU64>,
}

impl WalPrealloc {
    /// Opens the write-ahead log of `writer`, which must have read the database once, so that the file
    /// exists.
    pub(super) fn new(writer: &mut Connection, path: &Path) -> Result<Self, OpenError> {
        // SQLite resolves symbolic links, so use its path.
        let log = writer.path().map_or(path, Path::new);
        let file = OpenOptions::new()
            .write(true)
            .open(with_suffix(log, "-wal"))?;
        let written = Arc::new(AtomicU64::new(0));
        let committed = Arc::clone(&written);
        writer.wal_hook(Some(move |_: &mut Wal, pages| {
            committed.store(
                HEADER + FRAME_BYTES * u64::try_from(pages).unwrap_or_default(),
                Ordering::Relaxed,
            );
            Ok(())
        }))?;
        Ok(Self { file, written })
    }

    /// The length of the written part in bytes.
    pub(super) fn written(&self) -> u64 {
        self.written.load(Ordering::Relaxed)
    }

    /// Preallocates about `bytes`. The caller must hold the lock of the writer. A failure is not an error:
    /// the commit may still find space.
    pub(super) fn reserve(&self, bytes: u64) {
        if let Err(error) = self.try_reserve(bytes + SLACK) {
            tracing::debug!(%error, "could not preallocate the write-ahead log");
        }
    }

    fn try_reserve(&self, bytes: u64) -> io::Result<()> {
        // Write zeros instead of reserving space: the file system converts reserved space on the first write,
        // which also goes through its journal.
        const ZEROS: usize = 64 << 10;
        // Seek to the end instead of reading metadata. On Linux, reading metadata makes the next write update
        // the change time, and a sync waits for that too.
        let size = (&self.file).seek(SeekFrom::End(0))?;
        // The file may have been truncated since the last commit.
        let needed = self.written().min(size) + bytes;
        // Do not extend an empty file. The truncation is not synced yet: after a crash the old frames could
        // reappear behind zeros, and SQLite would accept them as a valid log. SQLite syncs a new header
        // before it writes more.
        if size == 0 || needed <= size || size >= MAX_PREALLOCATED {
            return Ok(());
        }
        let end = needed.clamp(size + MIN_GROWTH, size + MAX_GROWTH);
        let zeros = vec![0; ZEROS];
        (size..end)
            .step_by(ZEROS)
            .try_for_each(|at| self.file.write_all_at(&zeros, at))
    }
}
