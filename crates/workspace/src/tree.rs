//! Lists a directory, and searches files below one. Links are shown and never followed.
//!
//! Memory is bounded for any size of a directory: only the names that may be visited are kept. Entries are ordered by
//! name, and the content of a directory follows it. Therefore a search can resume where its page ended.

use std::collections::{BTreeSet, VecDeque};
use std::ffi::OsStr;
use std::ops::{Bound, RangeBounds};

use cap_std::fs::Dir;

use super::error::FileError;
use super::pattern::Pattern;
use super::roots::{ResolvedPath, Workspace, open_child};
use super::stat::{EntryKind, FileStat};

/// The maximum depth of a search, and its number of open directories.
const DEPTH: usize = 64;

#[derive(Debug)]
pub struct ListEntry {
    /// The path for the routes: relative in the working directory, absolute in others.
    pub path: String,
    pub name: String,
    pub stat: FileStat,
}

#[derive(Debug, Default)]
pub struct Page {
    pub entries: Vec<ListEntry>,
    /// The cursor of the next page, if there may be more.
    pub next: Option<String>,
}

#[derive(Debug, Clone, Copy)]
pub struct PageLimits {
    pub max_entries: usize,
    /// The maximum number of names that are visited.
    pub max_names: usize,
}

/// A directory on the path of a search.
struct SearchLevel {
    directory: Dir,
    /// Relative to the start of the search.
    path: String,
    names: Names,
}

impl Workspace {
    /// Lists a directory by name. `after` is the last name of the previous page.
    pub fn list(&self, path: &str, after: Option<&str>, limit: usize) -> Result<Page, FileError> {
        let resolved = self.resolve(path)?;
        let folder = resolved.open_directory()?;
        let base = self.path_prefix(&resolved);
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let Names { names, truncated } = Names::read_from(&folder, from, limit)?;
        let next = if truncated {
            names.back().cloned()
        } else {
            None
        };
        let found = |name: String| {
            Some(ListEntry {
                stat: stat_entry(&folder, &name)?,
                path: join(&base, &name),
                name,
            })
        };
        Ok(Page {
            entries: names.into_iter().filter_map(found).collect(),
            next,
        })
    }

    /// Searches all entries below a directory whose path from there matches. `after` is the cursor of the
    /// previous page. A page that reached a limit may be short or empty.
    pub fn find(
        &self,
        path: &str,
        pattern: &Pattern,
        after: Option<&str>,
        extent: PageLimits,
    ) -> Result<Page, FileError> {
        let resolved = self.resolve(path)?;
        let base = self.path_prefix(&resolved);
        let mut left = extent.max_names;
        let folder = resolved.open_directory()?;
        let mut levels = vec![SearchLevel::open(folder, String::new(), after, left)?];
        let mut page = Page::default();
        let mut last = after.map(str::to_owned);
        while let Some(level) = levels.last_mut() {
            if left == 0 || page.entries.len() == extent.max_entries {
                page.next = last;
                return Ok(page);
            }
            let Some(name) = level.names.names.pop_front() else {
                if level.names.truncated {
                    page.next = last;
                    return Ok(page);
                }
                levels.pop();
                continue;
            };
            left -= 1;
            let Some(seen) = stat_entry(&level.directory, &name) else {
                continue;
            };
            let path = join(&level.path, &name);
            // The previous page ended here or below. The search visits this entry again and does not show it.
            let rest = after.and_then(|after| after.strip_prefix(&*path));
            let again = rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
            if !again {
                last = Some(path.clone());
                if pattern.matches(&path) {
                    page.entries.push(ListEntry {
                        path: join(&base, &path),
                        name: name.clone(),
                        stat: seen.clone(),
                    });
                }
            }
            if seen.kind == EntryKind::Directory
                && levels.len() < DEPTH
                && let Some(level) = levels.last()
                && let Some(level) = level.open_child(&name, path, after, left)
            {
                let room = left.saturating_sub(level.names.names.len());
                trim_names(levels.iter_mut().map(|level| &mut level.names), room);
                levels.push(level);
            }
        }
        Ok(page)
    }

    /// The prefix of the paths below a place.
    fn path_prefix(&self, resolved: &ResolvedPath<'_>) -> String {
        let path = resolved.path.to_str().filter(|path| *path != ".");
        let path = path.unwrap_or_default();
        if self.is_cwd(resolved.root) {
            return path.to_owned();
        }
        join(&resolved.root.path.to_string_lossy(), path)
    }
}

impl ResolvedPath<'_> {
    fn open_directory(&self) -> Result<Dir, FileError> {
        if self.root.dir.metadata(&self.path)?.is_dir() {
            Ok(self.root.dir.open_dir(&self.path)?)
        } else {
            Err(FileError::NotADirectory)
        }
    }
}

impl SearchLevel {
    fn open(
        directory: Dir,
        path: String,
        after: Option<&str>,
        max: usize,
    ) -> Result<Self, FileError> {
        // Start in the directory in which the previous page ended. Otherwise everything is new.
        let rest = after.and_then(|after| match &*path {
            "" => Some(after),
            path => after.strip_prefix(path)?.strip_prefix('/'),
        });
        let first = rest.and_then(|rest| rest.split('/').next());
        let from = first.map_or(Bound::Unbounded, Bound::Included);
        Ok(Self {
            names: Names::read_from(&directory, from, max)?,
            directory,
            path,
        })
    }

    /// Opens a child directory. Returns `None` if it cannot be read or is not a directory any more.
    fn open_child(
        &self,
        name: &str,
        path: String,
        after: Option<&str>,
        max: usize,
    ) -> Option<Self> {
        let child = open_child(&self.directory, OsStr::new(name)).ok()?;
        Self::open(child, path, after, max).ok()
    }
}

/// The first names of a directory in order.
#[derive(Debug, Default)]
pub(super) struct Names {
    pub(super) names: VecDeque<String>,
    /// Whether later names were discarded.
    pub(super) truncated: bool,
}

impl Names {
    /// Reads up to `max` names that `accepts` accepts. Skips names that are not UTF-8. Stops before the next name if
    /// `may_continue` returns false for the number of names before it: the names are not in order, so none of them may be
    /// visited then.
    pub(super) fn read(
        folder: &Dir,
        max: usize,
        accepts: impl Fn(&str) -> bool,
        may_continue: impl Fn(usize) -> bool,
    ) -> Result<Self, FileError> {
        let mut kept = BTreeSet::new();
        let mut truncated = false;
        for (at, entry) in folder.entries()?.enumerate() {
            if !may_continue(at) {
                return Ok(Self {
                    names: VecDeque::new(),
                    truncated: true,
                });
            }
            let Ok(name) = entry?.file_name().into_string() else {
                continue;
            };
            if accepts(&name) && kept.insert(name) && kept.len() > max {
                kept.pop_last();
                truncated = true;
            }
        }
        Ok(Self {
            names: kept.into_iter().collect(),
            truncated,
        })
    }

    fn read_from(folder: &Dir, from: Bound<&str>, max: usize) -> Result<Self, FileError> {
        let range = (from, Bound::Unbounded);
        let accepts = |name: &str| RangeBounds::<str>::contains(&range, name);
        Self::read(folder, max, accepts, |_| true)
    }
}

/// Discards names that a walk will not visit, because deeper entries precede them. `room` is the total number
/// that is left.
pub(super) fn trim_names<'a>(
    levels: impl DoubleEndedIterator<Item = &'a mut Names>,
    mut room: usize,
) {
    for Names { names, truncated } in levels.rev() {
        *truncated |= names.len() > room;
        names.truncate(room);
        room -= names.len();
    }
}

fn stat_entry(folder: &Dir, name: &str) -> Option<FileStat> {
    FileStat::of_entry(folder, name).ok().flatten()
}

pub(super) fn join(folder: &str, name: &str) -> String {
    match (folder, name) {
        ("", name) => name.to_owned(),
        (folder, "") => folder.to_owned(),
        (folder, name) => format!("{folder}/{name}"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Workspaces;
    use super::*;

    fn paths(page: &Page) -> Vec<&str> {
        page.entries.iter().map(|found| &*found.path).collect()
    }

    fn fixture() -> (tempfile::TempDir, Workspace) {
        let dir = tempfile::tempdir().unwrap();
        for folder in ["w/a/deep", "w/b", "more"] {
            std::fs::create_dir_all(dir.path().join(folder)).unwrap();
        }
        for file in [
            "w/a/deep/x.rs",
            "w/a/x.rs",
            "w/a.rs",
            "w/b/y.rs",
            "w/z",
            "more/x.rs",
        ] {
            std::fs::write(dir.path().join(file), file).unwrap();
        }
        std::os::unix::fs::symlink("a", dir.path().join("w/link")).unwrap();
        let root = dir.path().canonicalize().unwrap();
        let workspaces = Workspaces::new(&root, &[]).unwrap();
        let workspace = workspaces
            .open(&root.join("w"), &[root.join("more")])
            .unwrap();
        (dir, workspace)
    }

    #[test]
    fn a_folder_is_listed_by_name_and_page() {
        let (dir, workspace) = fixture();
        let first = workspace.list(".", None, 3).unwrap();
        assert_eq!(paths(&first), ["a", "a.rs", "b"]);
        let kinds: Vec<EntryKind> = first.entries.iter().map(|found| found.stat.kind).collect();
        assert_eq!(
            kinds,
            [EntryKind::Directory, EntryKind::File, EntryKind::Directory]
        );
        assert_eq!(first.entries[1].stat.size, 6);
        let second = workspace.list(".", first.next.as_deref(), 3).unwrap();
        assert_eq!(paths(&second), ["link", "z"]);
        assert_eq!(
            (second.entries[0].stat.kind, second.next),
            (EntryKind::Link, None)
        );
        assert_eq!(
            paths(&workspace.list("link", None, 9).unwrap()),
            ["link/deep", "link/x.rs"]
        );
        let more = dir.path().canonicalize().unwrap().join("more");
        let listed = workspace.list(more.to_str().unwrap(), None, 9).unwrap();
        assert_eq!(listed.entries[0].path, format!("{}/x.rs", more.display()));
        assert!(
            workspace.open_file(&listed.entries[0].path).is_ok(),
            "a listed path can be opened"
        );
        assert!(matches!(
            workspace.list("z", None, 9),
            Err(FileError::NotADirectory)
        ));
        assert!(matches!(
            workspace.list("none", None, 9),
            Err(FileError::Missing)
        ));
    }

    #[test]
    fn search_resumes_at_any_page_size() {
        let (_dir, workspace) = fixture();
        let everything = [
            "a",
            "a/deep",
            "a/deep/x.rs",
            "a/x.rs",
            "a.rs",
            "b",
            "b/y.rs",
            "link",
            "z",
        ];
        let files = ["a/deep/x.rs", "a/x.rs", "a.rs", "b/y.rs"];
        for (text, expected) in [("", &everything[..]), ("*.rs", &files[..])] {
            let pattern = Pattern::new(text);
            for (limit, names) in [(1, 100), (2, 100), (100, 100), (100, 4), (1, 5)] {
                let mut all = Vec::new();
                let mut after = None;
                for _ in 0..50 {
                    let extent = PageLimits {
                        max_entries: limit,
                        max_names: names,
                    };
                    let page = workspace
                        .find(".", &pattern, after.as_deref(), extent)
                        .unwrap();
                    assert!(page.entries.len() <= limit);
                    all.extend(page.entries.into_iter().map(|found| found.path));
                    after = page.next;
                    if after.is_none() {
                        break;
                    }
                }
                assert_eq!(all, expected, "{text:?} by {limit} of {names}");
                assert_eq!(after, None, "the search ends");
            }
        }
        let below = workspace
            .find(
                "a",
                &Pattern::new("x"),
                None,
                PageLimits {
                    max_entries: 9,
                    max_names: 9,
                },
            )
            .unwrap();
        assert_eq!(paths(&below), ["a/deep/x.rs", "a/x.rs"]);
    }

    #[test]
    fn search_does_not_follow_a_link_loop() {
        let (dir, workspace) = fixture();
        std::os::unix::fs::symlink("..", dir.path().join("w/b/up")).unwrap();
        let extent = PageLimits {
            max_entries: 1000,
            max_names: 1000,
        };
        let page = workspace
            .find(".", &Pattern::new("up"), None, extent)
            .unwrap();
        assert_eq!(paths(&page), ["b/up"]);
    }
}
