//! Packs: files with compressed contents. The baselines of one folder share packs through hard links, so the file system
//! deletes a pack with its last baseline.

use std::fs::File;
use std::io::{self, BufWriter, Write as _};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use super::baseline::{Baseline, Content};
use crate::workspace::error::FileError;

/// Writes the pack of a baseline. The file is created with the first content.
#[derive(Debug)]
pub(super) struct PackWriter {
    path: PathBuf,
    /// The index in [`Baseline::packs`].
    number: usize,
    file: Option<BufWriter<File>>,
    offset: u64,
    /// The number of bytes that may still be added, before their compression.
    left: u64,
}

impl PackWriter {
    pub(super) fn new(path: PathBuf, number: usize, max_bytes: u64) -> Self {
        Self {
            path,
            number,
            file: None,
            offset: 0,
            left: max_bytes,
        }
    }

    /// Whether a content of this size may be added.
    pub(super) fn fits(&self, bytes: u64) -> bool {
        bytes <= self.left
    }

    pub(super) fn add(&mut self, content: &[u8]) -> io::Result<Content> {
        let compressed = lz4_flex::block::compress(content);
        let file = if let Some(file) = &mut self.file {
            file
        } else {
            let file = File::options()
                .write(true)
                .create_new(true)
                .mode(0o600)
                .open(&self.path)?;
            self.file.insert(BufWriter::new(file))
        };
        file.write_all(&compressed)?;
        let added = Content {
            pack: self.number,
            offset: self.offset,
            stored: compressed.len(),
            bytes: content.len(),
            checksum: crc32c::crc32c(&compressed),
        };
        self.offset += compressed.len() as u64;
        self.left = self.left.saturating_sub(content.len() as u64);
        Ok(added)
    }

    /// Completes the pack.
    pub(super) fn finish(mut self) -> io::Result<()> {
        self.file.as_mut().map_or(Ok(()), BufWriter::flush)
    }
}

impl Baseline {
    /// Reads a content. Fails if its pack is damaged.
    pub(super) fn read(&self, folder: &Path, content: &Content) -> Result<Vec<u8>, FileError> {
        let damaged = || io::Error::new(io::ErrorKind::InvalidData, "a stored content is damaged");
        let name = self.packs.get(content.pack).ok_or_else(damaged)?;
        let mut compressed = vec![0; content.stored];
        File::open(folder.join(name))?.read_exact_at(&mut compressed, content.offset)?;
        if crc32c::crc32c(&compressed) != content.checksum {
            return Err(damaged().into());
        }
        let bytes =
            lz4_flex::block::decompress(&compressed, content.bytes).map_err(io::Error::other)?;
        if bytes.len() == content.bytes {
            Ok(bytes)
        } else {
            Err(damaged().into())
        }
    }
}
