//! Compares the working folder with its baseline.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use rustix::fs::{AtFlags, FileType, statat};
use rustix::io::Errno;
use similar::{Algorithm, DiffTag, capture_diff_slices_deadline};
use tokio::time::Instant;

use super::baseline::{Baseline, Stamp, StoredFile};
use super::change::{ChangeKind, Sides, read_old, read_sides};
use super::place::{open_entry, parent_of};
use super::walk::{ChangeBounds, Found, Visitor, walk, walk_order};
use crate::error::FileError;
use crate::roots::Workspace;
use crate::stat::Owner;
use crate::text::text;
use base::types::Timestamp;

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

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FolderChanges {
    pub since: Timestamp,
    /// Why files may be missing in the list.
    pub incomplete: Option<&'static str>,
    /// Sorted by path.
    pub files: Vec<ChangedFile>,
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
    let files = baseline.files.iter();
    let mut comparison = Comparison {
        baseline: &baseline,
        remaining: files.map(|(path, file)| (&**path, file)).collect(),
        changes: BTreeMap::new(),
        unread: Vec::new(),
        folder,
        owner,
        max_bytes: bounds.max_file_bytes,
    };
    let stopped_at = walk(root, bounds, &mut comparison)?;
    if let Some(last) = &stopped_at {
        comparison.compare_later(workspace, last, Instant::now() + bounds.walk_time);
    }
    let Comparison {
        remaining,
        mut changes,
        unread,
        ..
    } = comparison;
    let readable = |path: &str| {
        !unread.iter().any(|skipped| {
            let below = path.strip_prefix(&**skipped);
            below.is_some_and(|below| below.is_empty() || below.starts_with('/'))
        })
    };
    let deleted = remaining.into_keys().filter(|path| readable(path));
    changes.extend(deleted.map(|path| (path.to_owned(), ChangeKind::Deleted)));
    let more = changes.len() > bounds.max_changes;
    let count_until = Instant::now() + bounds.count_time;
    let changed_file = |(path, kind): (String, ChangeKind)| {
        let stored = baseline.files.get(&path);
        let sides = if Instant::now() < count_until {
            let old = || read_old(&baseline, folder, stored);
            read_sides(workspace, old, &path, kind, bounds.max_file_bytes)
        } else {
            let stored = stored.is_some_and(|stored| stored.content.is_some());
            Sides {
                too_large: kind != ChangeKind::Added && !stored,
                ..Sides::default()
            }
        };
        describe(path, kind, &sides, count_until)
    };
    let shown = changes.into_iter().take(bounds.max_changes);
    let files = shown.map(changed_file).collect();
    let incomplete = incomplete(&baseline, stopped_at.is_some() || !unread.is_empty());
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

fn describe(path: String, kind: ChangeKind, sides: &Sides, count_until: Instant) -> ChangedFile {
    let too_large = sides.too_large;
    let sides = [&sides.old, &sides.new];
    let texts = sides.map(|side| side.as_deref().map_or(Some(""), text));
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
        too_large,
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
        let later = self.remaining.keys().copied();
        let later: Vec<&str> = later
            .filter(|path| walk_order(path, last).is_gt())
            .collect();
        for path in later {
            if let Some(stored) = self.remaining.remove(path)
                && Instant::now() < until
                && let Some(kind) = self.kind_at(workspace, path, stored)
            {
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
                let same = self.is_same(stored, &found);
                (!same).then_some(ChangeKind::Modified)
            }
            Ok(_) | Err(Errno::NOENT) => Some(ChangeKind::Deleted),
            Err(_) => None,
        }
    }

    /// The change of a regular file, if it has changed.
    fn kind_of(&mut self, found: &Found<'_>) -> Option<ChangeKind> {
        if let Some(stored) = self.remaining.remove(found.path) {
            let same = self.is_same(stored, found);
            return (!same).then_some(ChangeKind::Modified);
        }
        if self.baseline.others.contains(found.path) {
            return Some(ChangeKind::Modified);
        }
        (!found.ignored && self.baseline.lacks(found.path)).then_some(ChangeKind::Added)
    }

    /// Whether a file still has its content. Without a stored content, only the metadata decides.
    fn is_same(&self, stored: &StoredFile, found: &Found<'_>) -> bool {
        let stamp = Stamp::from(found.stat);
        if stamp == stored.stamp && (stored.settled || stored.content.is_none()) {
            return true;
        }
        let Some(content) = &stored.content else {
            return false;
        };
        let now = || {
            open_entry(found.directory, found.name, self.owner)?
                .0
                .read(self.max_bytes)
        };
        usize::try_from(stamp.size) == Ok(content.bytes)
            && now().is_ok_and(|now| {
                self.baseline
                    .read(self.folder, content)
                    .is_ok_and(|old| now == old)
            })
    }
}

/// The numbers of added and of deleted lines. After the deadline the result is an upper bound.
pub(super) fn count_lines(old: &str, new: &str, until: Instant) -> (u64, u64) {
    let mut numbers: HashMap<&str, u32> = HashMap::new();
    let mut number = |line| {
        let next = u32::try_from(numbers.len()).unwrap_or(u32::MAX);
        *numbers.entry(line).or_insert(next)
    };
    let [old, new] = [old, new].map(|text| {
        let lines = text.split_inclusive('\n').map(&mut number);
        lines.collect::<Vec<u32>>()
    });
    let until = Some(until.into_std());
    let parts = capture_diff_slices_deadline(Algorithm::Myers, &old, &new, until);
    let different = parts.iter().filter(|part| part.tag() != DiffTag::Equal);
    different.fold((0, 0), |(added, deleted), part| {
        let new = part.new_range().len() as u64;
        let old = part.old_range().len() as u64;
        (added + new, deleted + old)
    })
}

#[cfg(test)]
mod lines_tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn lines_are_counted() {
        let until = Instant::now() + Duration::from_secs(10);
        for (old, new, expected) in [
            ("", "", (0, 0)),
            ("", "a\nb", (2, 0)),
            ("a\nb\n", "", (0, 2)),
            ("a\nb\nc\n", "a\nx\nc\n", (1, 1)),
            ("a\nb\nc\n", "b\nc\nd\n", (1, 1)),
            ("a\n", "a", (1, 1)),
        ] {
            assert_eq!(count_lines(old, new, until), expected, "{old:?} {new:?}");
        }
    }

    #[test]
    fn the_deadline_bounds_the_work_for_any_texts() {
        let text = |seed: u64| {
            let mut state = seed;
            let mut text = String::new();
            while text.len() < 1 << 20 {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                text.push(char::from(
                    b'a' + u8::try_from(state >> 60).unwrap_or_default(),
                ));
                text.push('\n');
            }
            text
        };
        let old = text(1);
        let new = text(2);
        let start = Instant::now();
        let (added, deleted) = count_lines(&old, &new, start + Duration::from_millis(200));
        assert!(added > 0 && deleted > 0);
        assert!(
            start.elapsed() < Duration::from_secs(5),
            "{:?}",
            start.elapsed()
        );
    }
}
