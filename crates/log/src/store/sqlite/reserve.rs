//! Disk space that is allocated in advance. It is released when the disk is full, so that commits that end a
//! turn or delete data still succeed.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rusqlite::Connection;
use rusqlite::hooks::Wal;
use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;

use super::schema::{FRAME_BYTES, OpenError, RESTART_PAGES, with_suffix};

/// A file beside the log whose only purpose is to occupy space.
#[derive(Debug)]
pub(super) struct Reserve(pub(super) PathBuf);

impl Reserve {
    /// Allocates `bytes` if twice as many bytes are free on the disk. Otherwise returns false. Zero bytes need no
    /// space.
    pub(super) fn keep(&self, bytes: u64, free: u64) -> io::Result<bool> {
        let len = match std::fs::metadata(&self.0) {
            Ok(file) => file.len(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => 0,
            Err(error) => return Err(error),
        };
        if len == bytes {
            return Ok(true);
        }
        if len < bytes && free.saturating_add(len) / 2 < bytes {
            return Ok(false);
        }
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600);
        let file = options.open(&self.0)?;
        match fill(&file, bytes) {
            Ok(()) => Ok(true),
            Err(error) => {
                // An incomplete file would count as a reserve.
                file.set_len(0)?;
                let full = matches!(
                    error.kind(),
                    io::ErrorKind::StorageFull
                        | io::ErrorKind::QuotaExceeded
                        | io::ErrorKind::FileTooLarge
                );
                if full { Ok(false) } else { Err(error) }
            }
        }
    }

    /// Frees the space. Returns false if nothing was allocated.
    pub(super) fn release(&self) -> bool {
        let release = || {
            let file = OpenOptions::new().write(true).open(&self.0)?;
            let held = file.metadata()?.len() > 0;
            file.set_len(0).map(|()| held)
        };
        release().unwrap_or_else(|error: io::Error| {
            if error.kind() != io::ErrorKind::NotFound {
                tracing::error!(%error, "could not release the disk reserve");
            }
            false
        })
    }
}

fn fill(mut file: &File, bytes: u64) -> io::Result<()> {
    if bytes == 0 {
        return Ok(());
    }
    match fallocate(file, FallocateFlags::empty(), 0, bytes) {
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => {
            io::copy(&mut io::repeat(0).take(bytes), &mut file).map(drop)
        }
        allocated => Ok(allocated?),
    }
}

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
        let log = with_suffix(log, "-wal");
        let file = OpenOptions::new().write(true).open(log)?;
        let written = Arc::new(AtomicU64::new(0));
        let committed = Arc::clone(&written);
        writer.wal_hook(Some(move |_: &mut Wal, pages| {
            let frames = FRAME_BYTES * u64::try_from(pages).unwrap_or_default();
            committed.store(HEADER + frames, Ordering::Relaxed);
            Ok(())
        }))?;
        Ok(Self { file, written })
    }

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
        let mut blocks = (size..end).step_by(ZEROS);
        blocks.try_for_each(|at| self.file.write_all_at(&zeros, at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserve_needs_twice_its_size_and_is_released_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("reserve");
        let reserve = Reserve(path.clone());
        let len = || std::fs::metadata(&path).map_or(0, |file| file.len());
        assert!(!reserve.release(), "there is no reserve");
        assert!(!reserve.keep(1 << 20, (2 << 20) - 1).unwrap());
        assert_eq!(len(), 0);
        assert!(reserve.keep(1 << 20, 2 << 20).unwrap());
        assert_eq!(len(), 1 << 20);
        assert!(reserve.keep(1 << 20, 0).unwrap(), "the reserve exists");
        assert!(reserve.release());
        assert_eq!(len(), 0);
        assert!(!reserve.release(), "the reserve was released");
        assert!(reserve.keep(1 << 20, 2 << 20).unwrap());
        assert!(reserve.keep(0, 0).unwrap());
        assert_eq!(len(), 0, "a reserve of zero bytes");
    }
}
