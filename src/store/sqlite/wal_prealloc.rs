//! Room for the write-ahead log before it is written to: a sync after a write that makes a file longer waits for the file
//! system's own journal too, which takes a disk about as long as the bytes do.

use std::fs::{File, OpenOptions};
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rusqlite::Connection;
use rusqlite::hooks::Wal;

use super::checkpoint::RESTART_PAGES;
use super::{OpenError, schema};

/// A page in the write-ahead log, with what says which it is.
pub(super) const FRAME_BYTES: u64 = 8192 + 24;
const HEADER: u64 = 32;
/// It gets so much more at a time: the commit that comes next waits until a disk has it all.
const MIN_GROWTH: u64 = 512 << 10;
/// And for a longer commit what that needs, up to so much.
const MAX_GROWTH: u64 = 4 << 20;
/// Pages of the trees that lead to what a commit writes.
const SLACK: u64 = 8 * FRAME_BYTES;
/// A longer one grows by what is written, until commits wait for it to begin anew.
const MAX_PREALLOCATED: u64 = RESTART_PAGES * FRAME_BYTES;

/// The write-ahead log of the connection that commits. Nothing is kept of it here but how far it was written: it may be cut
/// when nothing happens, and by the commit that begins it anew.
#[derive(Debug)]
pub(super) struct WalPrealloc {
    file: File,
    written: Arc<AtomicU64>,
}

impl WalPrealloc {
    /// Of a log that this connection has read already: then its write-ahead log is there.
    pub(super) fn new(writer: &mut Connection, path: &Path) -> Result<Self, OpenError> {
        // SQLite follows links.
        let log = writer.path().map_or(path, Path::new);
        let file = OpenOptions::new().write(true).open(schema::with_suffix(log, "-wal"))?;
        let written = Arc::new(AtomicU64::new(0));
        let told = Arc::clone(&written);
        writer.wal_hook(Some(move |_: &mut Wal, pages| {
            told.store(HEADER + FRAME_BYTES * u64::try_from(pages).unwrap_or_default(), Ordering::Relaxed);
            Ok(())
        }))?;
        Ok(Self { file, written })
    }

    /// How far it is written.
    pub(super) fn written(&self) -> u64 {
        self.written.load(Ordering::Relaxed)
    }

    /// Makes room for about so many bytes more. The caller holds the lock that every writer of the log takes. What a disk
    /// does not give here it may still give to the commit itself.
    pub(super) fn reserve(&self, bytes: u64) {
        if let Err(error) = self.try_reserve(bytes + SLACK) {
            tracing::debug!(%error, "the write-ahead log gets no room beforehand");
        }
    }

    fn try_reserve(&self, bytes: u64) -> io::Result<()> {
        // Only zeros that were written will do: what a file system has merely set aside becomes a part of the file when it
        // is written to, and its journal has to know of that too.
        const ZEROS: usize = 64 << 10;
        // Where it ends, and not its metadata: after those were asked for, Linux gives the file a new time of change with
        // the next write, and a sync waits for that too.
        let size = (&self.file).seek(SeekFrom::End(0))?;
        // It may have been cut since.
        let needed = self.written().min(size) + bytes;
        // Nothing has synced a cut yet: after a crash what was cut may be there again, with zeros in the middle of it, and
        // then SQLite would take its beginning for the whole. It syncs a new header before it writes more.
        if size == 0 || needed <= size || size >= MAX_PREALLOCATED {
            return Ok(());
        }
        let end = needed.clamp(size + MIN_GROWTH, size + MAX_GROWTH);
        let zeros = vec![0; ZEROS];
        (size..end).step_by(ZEROS).try_for_each(|at| self.file.write_all_at(&zeros, at))
    }
}
