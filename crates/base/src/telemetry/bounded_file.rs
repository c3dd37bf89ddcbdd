//! A log file with a maximum size.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd as _;
use std::sync::atomic::{AtomicU64, Ordering};

/// A file above this size is emptied.
const MAX_BYTES: u64 = 4 << 20;

/// A file that is open for appending, so that an empty file begins again at its start.
#[derive(Debug)]
pub(super) struct BoundedFile {
    file: File,
    bytes: AtomicU64,
    max: u64,
}

impl BoundedFile {
    pub(super) fn stderr() -> io::Result<Self> {
        let file = File::from(io::stderr().as_fd().try_clone_to_owned()?);
        Self::new(file, MAX_BYTES)
    }

    fn new(file: File, max: u64) -> io::Result<Self> {
        let bytes = AtomicU64::new(file.metadata()?.len());
        Ok(Self { file, bytes, max })
    }
}

impl Write for &BoundedFile {
    fn write(&mut self, record: &[u8]) -> io::Result<usize> {
        let size = record.len() as u64;
        if self.bytes.fetch_add(size, Ordering::Relaxed) + size > self.max {
            self.file.set_len(0)?;
            self.bytes.store(size, Ordering::Relaxed);
        }
        (&self.file).write(record)
    }

    fn flush(&mut self) -> io::Result<()> {
        (&self.file).flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_above_its_limit_is_emptied() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        std::fs::write(&path, "first\n").unwrap();
        let file = File::options().append(true).open(&path).unwrap();
        let bounded = BoundedFile::new(file, 16).unwrap();
        let size = |record: &str| {
            (&bounded).write_all(record.as_bytes()).unwrap();
            std::fs::read_to_string(&path).unwrap()
        };
        assert_eq!(size("second\n"), "first\nsecond\n");
        assert_eq!(size("third\n"), "third\n");
        assert_eq!(size("fourth\n"), "third\nfourth\n");
    }
}
