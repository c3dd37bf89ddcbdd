//! Compares the working folder with its baseline.

use std::collections::BTreeMap;
use std::path::Path;

use rustix::fs::{AtFlags, FileType, statat};
use rustix::io::Errno;
use tokio::time::Instant;

use super::baseline::{Baseline, Stamp, StoredFile};
use super::bounds::ChangeBounds;
use super::lines::count_lines;
use super::place::{open_entry, parent_of};
use super::sides::{ChangeKind, Sides, read_sides};
use super::walk::{Found, Visitor, walk, walk_order};
use crate::types::Timestamp;
use crate::workspace::error::FileError;
use crate::workspace::media::text;
use crate::workspace::owner::Owner;
use crate::workspace::roots::Workspace;

/// A file that differs from its state at the start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChangedFile {
    /// Relative to the working folder.
    pub path: String,
    pub kind: ChangeKind,
    /// The numbers of added and of deleted lines. `None` unless both texts are known.
    pub lines: Option<(u64, u64)>,
    /// Whether a content is not text.
    pub binary: bool,
    /// Whether a content is too large to be shown, or was not stored.
    pub too_large: bool,
}

/// The changes of a folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FolderChanges {
    /// The time of the baseline.
    pub since: Timestamp,
    /// Why files may be missing in the list.
    pub incomplete: Option<&'static str>,
    /// Sorted by path.
    pub files: Vec<ChangedFile>,
    /// Whether there are more changes.
    pub more: bool,
}

/// Compares the working folder with the baseline in `folder`. Fails with [`FileError::NotStored`] without a baseline.
pub fn compare(
    workspace: &Workspace,
    folder: &Path,
    bounds: &ChangeBounds,
) -> Result<FolderChanges, FileError> {
    let baseline = Baseline::load(folder).ok_or(FileError::NotStored)?;
    let root = workspace.working_directory()?;
    let owner = Owner::of(&root)?;
    let mut comparison = Comparison {
        baseline: &baseline,
        remaining: baseline
            .files
            .iter()
            .map(|(path, file)| (&**path, file))
            .collect(),
        changes: BTreeMap::new(),
        unread: Vec::new(),
        reader: ContentReader {
            folder,
            owner,
            max_bytes: bounds.max_file_bytes,
        },
    };
    let end = walk(root, bounds, &mut comparison)?;
    if let Some(last) = &end.stopped_at {
        comparison.compare_later(workspace, last, Instant::now() + bounds.walk_time);
    }
    let Comparison {
        remaining,
        mut changes,
        unread,
        ..
    } = comparison;
    let readable = |path: &str| {
        let below = |skipped: &String| {
            path.strip_prefix(&**skipped)
                .is_some_and(|below| below.is_empty() || below.starts_with('/'))
        };
        !unread.iter().any(below)
    };
    let deleted = remaining.into_keys().filter(|path| readable(path));
    changes.extend(deleted.map(|path| (path.to_owned(), ChangeKind::Deleted)));
    let more = changes.len() > bounds.max_changes;
    let count_until = Instant::now() + bounds.count_time;
    let files = changes
        .into_iter()
        .take(bounds.max_changes)
        .map(|(path, kind)| {
            let sides = if Instant::now() < count_until {
                read_sides(
                    workspace,
                    (&baseline, folder),
                    (&path, kind),
                    bounds.max_file_bytes,
                )
            } else {
                let stored = baseline
                    .files
                    .get(&path)
                    .is_some_and(|stored| stored.content.is_some());
                Sides {
                    too_large: kind != ChangeKind::Added && !stored,
                    ..Sides::default()
                }
            };
            describe((path, kind), &sides, count_until)
        });
    let files = files.collect();
    let incomplete = incomplete(&baseline, end.stopped_at.is_some() || !unread.is_empty());
    Ok(FolderChanges {
        since: baseline.since,
        incomplete,
        files,
        more,
    })
}

/// Why files may be missing in the result.
fn incomplete(baseline: &Baseline, stopped: bool) -> Option<&'static str> {
    if baseline.stopped_at.is_some() {
        Some("the folder was too large at the start: the changes of later paths are not known")
    } else if stopped {
        Some(
            "the folder is too large now, or a part of it cannot be read: the changes of other paths are not known",
        )
    } else if baseline.contents_missing {
        Some(
            "the contents at the start were too large, or reading them took too long: some of them were not stored",
        )
    } else {
        None
    }
}

fn describe(
    (path, kind): (String, ChangeKind),
    sides: &Sides,
    count_until: Instant,
) -> ChangedFile {
    let Sides {
        old,
        new,
        too_large,
    } = sides;
    let texts = [old, new].map(|side| side.as_deref().map_or(Some(""), text));
    let binary = texts.iter().any(Option::is_none);
    let lines = match texts {
        // After the deadline the contents were not read.
        [Some(old), Some(new)] if !too_large && Instant::now() < count_until => {
            Some(count_lines(old, new, count_until))
        }
        _ => None,
    };
    ChangedFile {
        path,
        kind,
        lines,
        binary,
        too_large: *too_large,
    }
}

/// Compares the entries of a walk with a baseline.
struct Comparison<'a> {
    baseline: &'a Baseline,
    /// The files of the baseline that the walk did not find yet.
    remaining: BTreeMap<&'a str, &'a StoredFile>,
    changes: BTreeMap<String, ChangeKind>,
    /// The directories that could not be read.
    unread: Vec<String>,
    reader: ContentReader<'a>,
}

/// Reads contents, to compare them.
struct ContentReader<'a> {
    folder: &'a Path,
    owner: Owner,
    max_bytes: u64,
}

impl Visitor for Comparison<'_> {
    fn visit(&mut self, found: &Found<'_>) -> bool {
        match FileType::from_raw_mode(found.stat.st_mode) {
            // The files of the start are compared even if they are ignored now.
            FileType::Directory => {
                !self.baseline.skipped.contains(found.path)
                    && (!found.ignored || self.baseline.has_below(found.path))
            }
            FileType::RegularFile => {
                if let Some(kind) = self.kind_of(found) {
                    self.changes.insert(found.path.to_owned(), kind);
                }
                false
            }
            _ => false,
        }
    }

    fn skip(&mut self, path: &str) {
        self.unread.push(path.to_owned());
    }
}

impl Comparison<'_> {
    /// Compares the files of the baseline after `last`, where the walk stopped. Otherwise an agent could hide changes behind
    /// many new files.
    fn compare_later(&mut self, workspace: &Workspace, last: &str, until: Instant) {
        let later: Vec<&str> = self
            .remaining
            .keys()
            .copied()
            .filter(|path| walk_order(path, last).is_gt())
            .collect();
        for path in later {
            let stored = self
                .remaining
                .remove(path)
                .filter(|_| Instant::now() < until);
            if let Some(kind) = stored.and_then(|stored| self.kind_at(workspace, path, stored)) {
                self.changes.insert(path.to_owned(), kind);
            }
        }
    }

    /// The change of a file of the baseline, if it has changed. `None` also if the file cannot be read.
    fn kind_at(
        &self,
        workspace: &Workspace,
        path: &str,
        stored: &StoredFile,
    ) -> Option<ChangeKind> {
        let Some((directory, name)) = parent_of(workspace, path).ok()? else {
            return Some(ChangeKind::Deleted);
        };
        match statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile => {
                let found = Found {
                    directory: &directory,
                    name,
                    path,
                    stat: &stat,
                    ignored: false,
                };
                let same = self.reader.is_same(self.baseline, stored, &found);
                (!same).then_some(ChangeKind::Modified)
            }
            Ok(_) | Err(Errno::NOENT) => Some(ChangeKind::Deleted),
            Err(_) => None,
        }
    }

    /// The change of a regular file, if it has changed.
    fn kind_of(&mut self, found: &Found<'_>) -> Option<ChangeKind> {
        if let Some(stored) = self.remaining.remove(found.path) {
            let same = self.reader.is_same(self.baseline, stored, found);
            return (!same).then_some(ChangeKind::Modified);
        }
        if self.baseline.others.contains(found.path) {
            return Some(ChangeKind::Modified);
        }
        (!found.ignored && self.baseline.lacks(found.path)).then_some(ChangeKind::Added)
    }
}

impl ContentReader<'_> {
    /// Whether a file still has its content. Without a stored content, only the metadata decides.
    fn is_same(&self, baseline: &Baseline, stored: &StoredFile, found: &Found<'_>) -> bool {
        let stamp = Stamp::from(found.stat);
        if stamp == stored.stamp && (stored.settled || stored.content.is_none()) {
            return true;
        }
        let Some(content) = &stored.content else {
            return false;
        };
        if usize::try_from(stamp.size) != Ok(content.bytes) {
            return false;
        }
        let now = open_entry(found.directory, found.name, self.owner)
            .and_then(|(file, _)| file.read(self.max_bytes));
        match (now, baseline.read(self.folder, content)) {
            (Ok(now), Ok(old)) => now == old,
            _ => false,
        }
    }
}
