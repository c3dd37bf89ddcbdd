//! The record of a folder at the start of a session, and its file.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, BufWriter, Write as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::Stat;
use serde::{Deserialize, Serialize};

use super::walk::walk_order;
use crate::error::FileError;
use base::types::Timestamp;

/// The name of the file with the record, in the folder of the baseline.
const FILE: &str = "baseline";
/// The suffix of packs, the other files in that folder.
pub(super) const PACK_SUFFIX: &str = ".pack";
/// The maximum size of the record, in bytes.
const MAX_BYTES: u64 = 64 << 20;
const CHECKSUM_BYTES: usize = 4;

/// A folder at the start of a session.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Baseline {
    pub(super) since: Timestamp,
    pub(super) files: BTreeMap<String, StoredFile>,
    /// The links and special files.
    pub(super) others: BTreeSet<String>,
    /// Paths that were ignored, or could not be read. Nothing is known about files at or below them.
    pub(super) skipped: BTreeSet<String>,
    /// The last visited path, if the walk stopped at a bound. Nothing is known about later paths.
    pub(super) stopped_at: Option<String>,
    /// Whether contents are missing because of a bound on all contents, or an error of the disk.
    pub(super) contents_missing: bool,
    /// The names of the files with the contents.
    pub(super) packs: Vec<String>,
}

/// A regular file at the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct StoredFile {
    pub(super) stamp: Stamp,
    /// The permission bits.
    pub(super) mode: u32,
    /// Whether every later write changes the stamp. False for a file that changed just before it was read: the kernel
    /// updates its times at an interval.
    pub(super) settled: bool,
    pub(super) content: Option<Content>,
}

/// The metadata that every write to a file changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Stamp {
    pub(super) size: i64,
    modified: (i64, i64),
    pub(super) changed: (i64, i64),
    inode: u64,
}

/// The position of a content in a pack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Content {
    /// The index in [`Baseline::packs`].
    pub(super) pack: usize,
    pub(super) offset: u64,
    /// The number of compressed bytes.
    pub(super) stored: usize,
    pub(super) bytes: usize,
    /// The checksum of the compressed bytes.
    pub(super) checksum: u32,
}

impl From<&Stat> for Stamp {
    fn from(stat: &Stat) -> Self {
        let nanos = |nanos| i64::try_from(nanos).unwrap_or_default();
        Self {
            size: stat.st_size,
            modified: (stat.st_mtime, nanos(stat.st_mtime_nsec)),
            changed: (stat.st_ctime, nanos(stat.st_ctime_nsec)),
            inode: stat.st_ino,
        }
    }
}

impl Baseline {
    pub(super) fn new(since: Timestamp) -> Self {
        Self {
            since,
            files: BTreeMap::new(),
            others: BTreeSet::new(),
            skipped: BTreeSet::new(),
            stopped_at: None,
            contents_missing: false,
            packs: Vec::new(),
        }
    }

    /// Whether it is known that no file had this path at the start.
    pub(super) fn lacks(&self, path: &str) -> bool {
        if self.files.contains_key(path) || self.others.contains(path) {
            return false;
        }
        let above = path.rmatch_indices('/').map(|(at, _)| &path[..at]);
        if std::iter::once(path)
            .chain(above)
            .any(|path| self.skipped.contains(path))
        {
            return false;
        }
        let last = self.stopped_at.as_deref();
        last.is_none_or(|last| walk_order(path, last).is_le())
    }

    /// Whether a file was below this directory at the start.
    pub(super) fn has_below(&self, directory: &str) -> bool {
        let prefix = format!("{directory}/");
        let next = self.files.range(prefix.clone()..).next();
        next.is_some_and(|(path, _)| path.starts_with(&prefix))
    }

    /// Writes the record to its folder. It appears there at once, and as the last file of the baseline.
    pub(super) fn save(&self, folder: &Path) -> io::Result<()> {
        let compressed = lz4_flex::block::compress_prepend_size(&serde_json::to_vec(self)?);
        let temporary = folder.join("baseline.new");
        let mut file = std::fs::File::create(&temporary)?;
        file.write_all(&crc32c::crc32c(&compressed).to_be_bytes())?;
        file.write_all(&compressed)?;
        std::fs::rename(&temporary, folder.join(FILE))
    }

    /// Reads the record in a folder. `None` if there is none, or if it is damaged.
    pub(super) fn load(folder: &Path) -> Option<Self> {
        let path = folder.join(FILE);
        if std::fs::metadata(&path).ok()?.len() > MAX_BYTES {
            return None;
        }
        let bytes = std::fs::read(path).ok()?;
        let (checksum, compressed) = bytes.split_at_checked(CHECKSUM_BYTES)?;
        if checksum != crc32c::crc32c(compressed).to_be_bytes() {
            return None;
        }
        let text = lz4_flex::block::decompress_size_prepended(compressed).ok()?;
        serde_json::from_slice(&text).ok()
    }
}

/// Whether a folder has a baseline that can be read.
pub fn has_baseline(folder: &Path) -> bool {
    Baseline::load(folder).is_some()
}

/// The number of bytes on the disk that only this baseline uses.
pub fn own_bytes(folder: &Path) -> u64 {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return 0;
    };
    let packs = entries.filter_map(|entry| entry.ok()?.metadata().ok());
    let own = packs.filter(|pack| pack.nlink() == 1);
    own.map(|pack| pack.len()).sum()
}

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
            let mut options = File::options();
            options.write(true).create_new(true).mode(0o600);
            let file = options.open(&self.path)?;
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
    pub(super) fn read(&self, folder: &Path, content: &Content) -> Result<Vec<u8>, FileError> {
        let damaged = || io::Error::new(io::ErrorKind::InvalidData, "a stored content is damaged");
        let name = self.packs.get(content.pack).ok_or_else(damaged)?;
        let mut compressed = vec![0; content.stored];
        File::open(folder.join(name))?.read_exact_at(&mut compressed, content.offset)?;
        if crc32c::crc32c(&compressed) != content.checksum {
            return Err(damaged().into());
        }
        let bytes = lz4_flex::block::decompress(&compressed, content.bytes);
        let bytes = bytes.map_err(io::Error::other)?;
        if bytes.len() != content.bytes {
            return Err(damaged().into());
        }
        Ok(bytes)
    }
}
