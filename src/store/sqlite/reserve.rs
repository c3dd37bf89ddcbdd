//! Disk space that is allocated in advance. It is released when the disk is full, so that commits that end a
//! turn or delete data still succeed.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;

/// A file beside the log whose only purpose is to occupy space.
#[derive(Debug)]
pub(super) struct Reserve(pub(super) PathBuf);

impl Reserve {
    /// Allocates `bytes` if the disk has twice as much space. Returns false if it has not. Zero bytes need no
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
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&self.0)?;
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
        let released = OpenOptions::new()
            .write(true)
            .open(&self.0)
            .and_then(|file| {
                let held = file.metadata()?.len() > 0;
                file.set_len(0).map(|()| held)
            });
        released.unwrap_or_else(|error| {
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
