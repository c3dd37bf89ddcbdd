//! Takes the baseline of a folder.

use std::collections::BTreeMap;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;

use rustix::fs::FileType;
use tokio::time::Instant;

use super::baseline::{Baseline, Content, PACK_SUFFIX, PackWriter, Stamp, StoredFile, own_bytes};
use super::place::open_entry;
use super::walk::{ChangeBounds, Found, Visitor, walk};
use crate::error::FileError;
use crate::roots::{Workspace, remove_folder};
use crate::stat::Owner;
use base::types::Timestamp;

/// The maximum number of packs of a baseline. The next baseline stores all contents again.
const MAX_PACKS: usize = 16;
/// A file that changed within this time before the baseline may change again without a new stamp. Some file systems store
/// times in steps of two seconds.
const SETTLING_SECONDS: i64 = 2;

/// Where a baseline is stored.
#[derive(Debug, Clone, Copy)]
pub struct Capture<'a> {
    /// The folder of the baseline. Its previous content is removed.
    pub folder: &'a Path,
    /// The name of the new pack, without its suffix. No other baseline has it.
    pub pack: &'a str,
    /// The folder of an earlier baseline of the same working folder, whose contents are shared.
    pub previous: Option<&'a Path>,
    pub since: Timestamp,
}

/// Takes the baseline of the working folder. Returns the number of bytes that it adds to the disk.
pub fn take_baseline(
    workspace: &Workspace,
    capture: Capture<'_>,
    bounds: &ChangeBounds,
) -> Result<u64, FileError> {
    let Capture {
        folder,
        pack,
        previous,
        since,
    } = capture;
    remove_folder(folder)?;
    let mut builder = std::fs::DirBuilder::new();
    builder.mode(0o700).recursive(true).create(folder)?;
    let mut shared = previous.and_then(|previous| share(previous, folder));
    let packs = match &mut shared {
        Some(shared) => std::mem::take(&mut shared.packs),
        None => Vec::new(),
    };
    let root = workspace.working_directory()?;
    let owner = Owner::of(&root)?;
    let name = format!("{pack}{PACK_SUFFIX}");
    let writer = PackWriter::new(folder.join(&name), packs.len(), bounds.max_new_bytes);
    let mut recorder = Recorder {
        baseline: Baseline {
            packs,
            ..Baseline::new(since)
        },
        shared,
        writer,
        owner,
        max_file_bytes: bounds.max_file_bytes,
        read_until: Instant::now() + bounds.content_time,
    };
    let stopped_at = walk(root, bounds, &mut recorder)?;
    let Recorder {
        mut baseline,
        writer,
        ..
    } = recorder;
    baseline.stopped_at = stopped_at;
    writer.finish()?;
    baseline.packs.push(name);
    remove_unused_packs(&mut baseline, folder);
    baseline.save(folder)?;
    Ok(own_bytes(folder))
}

/// Links the packs of an earlier baseline to the new one, and returns the earlier baseline. `None` if it cannot be
/// shared: the new baseline then stores all contents.
fn share(previous: &Path, folder: &Path) -> Option<Baseline> {
    let baseline = Baseline::load(previous).filter(|baseline| baseline.packs.len() < MAX_PACKS)?;
    for pack in &baseline.packs {
        std::fs::hard_link(previous.join(pack), folder.join(pack)).ok()?;
    }
    Some(baseline)
}

/// Removes the packs without a content of this baseline.
fn remove_unused_packs(baseline: &mut Baseline, folder: &Path) {
    let mut numbers: BTreeMap<usize, usize> = BTreeMap::new();
    for content in baseline.files.values().filter_map(|file| file.content) {
        let next = numbers.len();
        numbers.entry(content.pack).or_insert(next);
    }
    let mut kept: Vec<(usize, String)> = Vec::new();
    for (number, pack) in std::mem::take(&mut baseline.packs).into_iter().enumerate() {
        match numbers.get(&number) {
            Some(new) => kept.push((*new, pack)),
            // A pack that remains is only unused space.
            None => {
                let _ = std::fs::remove_file(folder.join(pack));
            }
        }
    }
    kept.sort_unstable();
    baseline.packs = kept.into_iter().map(|(_, pack)| pack).collect();
    let files = baseline.files.values_mut();
    for content in files.filter_map(|file| file.content.as_mut()) {
        content.pack = numbers.get(&content.pack).copied().unwrap_or_default();
    }
}

/// Records the entries of a walk.
struct Recorder {
    baseline: Baseline,
    /// The earlier baseline whose contents are shared.
    shared: Option<Baseline>,
    writer: PackWriter,
    owner: Owner,
    max_file_bytes: u64,
    read_until: Instant,
}

impl Visitor for Recorder {
    fn visit(&mut self, found: &Found<'_>) -> bool {
        let path = found.path.to_owned();
        if found.ignored {
            self.baseline.skipped.insert(path);
            return false;
        }
        match FileType::from_raw_mode(found.stat.st_mode) {
            FileType::Directory => true,
            FileType::RegularFile => {
                let file = self.record(found);
                self.baseline.files.insert(path, file);
                false
            }
            _ => {
                self.baseline.others.insert(path);
                false
            }
        }
    }

    fn skip(&mut self, path: &str) {
        self.baseline.skipped.insert(path.to_owned());
    }
}

impl Recorder {
    fn record(&mut self, found: &Found<'_>) -> StoredFile {
        let stamp = Stamp::from(found.stat);
        let since = self.baseline.since.as_millis() / 1000;
        StoredFile {
            stamp,
            mode: found.stat.st_mode & 0o777,
            settled: stamp.changed.0 < since - SETTLING_SECONDS,
            content: self.content_of(found, stamp),
        }
    }
    fn content_of(&mut self, found: &Found<'_>, stamp: Stamp) -> Option<Content> {
        let shared = self.shared.as_ref();
        if let Some(same) = shared.and_then(|shared| shared.files.get(found.path))
            && same.settled
            && same.stamp == stamp
            && same.content.is_some()
        {
            return same.content;
        }
        let size = u64::try_from(stamp.size).unwrap_or(u64::MAX);
        if size > self.max_file_bytes {
            return None;
        }
        if self.writer.fits(size) && Instant::now() < self.read_until {
            return self.store(found);
        }
        self.baseline.contents_missing = true;
        None
    }

    /// Stores the content of a file. `None` if the file cannot be read, changes meanwhile, or the disk is full.
    fn store(&mut self, found: &Found<'_>) -> Option<Content> {
        let (file, opened) = open_entry(found.directory, found.name, self.owner).ok()?;
        let bytes = file.read(self.max_file_bytes).ok()?;
        let same = Stamp::from(&opened) == Stamp::from(found.stat);
        if !same || !self.writer.fits(bytes.len() as u64) {
            self.baseline.contents_missing = true;
            return None;
        }
        let added = self.writer.add(&bytes);
        if let Err(error) = &added {
            tracing::warn!(%error, "could not store the content of a file for the changes of a session");
            self.baseline.contents_missing = true;
        }
        added.ok()
    }
}
