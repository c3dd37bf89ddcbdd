//! The record of a folder at the start of a session, and its file.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use rustix::fs::Stat;
use serde::{Deserialize, Serialize};

use super::walk::walk_order;
use crate::types::Timestamp;

/// The name of the file with the record, in the folder of the baseline.
const FILE: &str = "baseline";
/// The suffix of packs, the other files in that folder.
pub(super) const PACK_SUFFIX: &str = ".pack";
/// The maximum size of the record, in bytes.
const MAX_BYTES: u64 = 64 << 20;
/// The number of bytes of the checksum.
const CHECKSUM_BYTES: usize = 4;

/// A folder at the start of a session.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Baseline {
    pub(super) since: Timestamp,
    /// The regular files.
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
    /// The content, if it is stored.
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
    /// The number of bytes.
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
        let mut above = path;
        loop {
            if self.skipped.contains(above) {
                return false;
            }
            match above.rsplit_once('/') {
                Some((parent, _)) => above = parent,
                None => break,
            }
        }
        self.stopped_at
            .as_deref()
            .is_none_or(|last| walk_order(path, last).is_le())
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
    let packs = entries
        .filter_map(Result::ok)
        .filter_map(|entry| entry.metadata().ok());
    packs
        .filter(|pack| pack.nlink() == 1)
        .map(|pack| pack.len())
        .sum()
}
