//! Lists a directory, and searches files below one. Links are shown and never followed.
//!
//! Memory is bounded for any size of a directory: only the names that may be visited are kept. Entries are ordered by
//! name, and the content of a directory follows it. Therefore a search can resume where its page ended.

use std::collections::{BTreeSet, VecDeque};
use std::ffi::OsStr;

use cap_std::fs::Dir;
use rustix::fs::{AtFlags, statat};

use super::error::FileError;
use super::pattern::Pattern;
use super::roots::{Place, Workspace, step};
use super::seen::{Kind, Seen};

/// The maximum depth of a search, and its number of open directories.
const DEPTH: usize = 64;

/// An entry of a list.
#[derive(Debug)]
pub struct Found {
    /// The path for the routes: relative in the working directory, absolute in others.
    pub path: String,
    pub name: String,
    pub seen: Seen,
}

/// A page of entries.
#[derive(Debug, Default)]
pub struct Page {
    pub found: Vec<Found>,
    /// The cursor of the next page, if there may be more.
    pub next: Option<String>,
}

/// The limits of a page.
#[derive(Debug, Clone, Copy)]
pub struct Extent {
    /// The maximum number of entries.
    pub limit: usize,
    /// The maximum number of names that are visited.
    pub names: usize,
}

/// The position at which the names of a directory start.
#[derive(Debug, Clone, Copy)]
enum From<'a> {
    First,
    At(&'a str),
    After(&'a str),
}

/// A directory on the path of a search.
struct Level {
    folder: Dir,
    /// Relative to the start of the search.
    path: String,
    /// The names to visit.
    names: VecDeque<String>,
    /// Whether names were discarded.
    cut: bool,
}

impl Workspace {
    /// Lists a directory by name. `after` is the last name of the previous page.
    pub fn list(&self, path: &str, after: Option<&str>, limit: usize) -> Result<Page, FileError> {
        let place = self.place(path)?;
        let folder = place.folder()?;
        let base = self.base(&place);
        let (names, cut) = names(&folder, after.map_or(From::First, From::After), limit)?;
        let next = names.back().filter(|_| cut).cloned();
        let found = |name: String| {
            let seen = look(&folder, &name)?;
            Some(Found { path: join(&base, &name), name, seen })
        };
        Ok(Page { found: names.into_iter().filter_map(found).collect(), next })
    }

    /// Searches all entries below a directory whose path from there matches. `after` is the cursor of the
    /// previous page. A page that reached a limit may be short or empty.
    pub fn find(
        &self,
        path: &str,
        pattern: &Pattern,
        after: Option<&str>,
        extent: Extent,
    ) -> Result<Page, FileError> {
        let place = self.place(path)?;
        let base = self.base(&place);
        let mut left = extent.names;
        let mut levels = vec![Level::open(place.folder()?, String::new(), after, left)?];
        let mut page = Page::default();
        let mut last = after.map(str::to_owned);
        while let Some(level) = levels.last_mut() {
            let full = left == 0 || page.found.len() == extent.limit;
            let Some(name) = level.names.pop_front().filter(|_| !full) else {
                if full || level.cut {
                    page.next = last;
                    return Ok(page);
                }
                levels.pop();
                continue;
            };
            left -= 1;
            let Some(seen) = look(&level.folder, &name) else { continue };
            let path = join(&level.path, &name);
            // The previous page ended here or below. The search visits this entry again and does not show it.
            let rest = after.and_then(|after| after.strip_prefix(&*path));
            let again = rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
            if !again {
                last = Some(path.clone());
                if pattern.matches(&path) {
                    page.found.push(Found {
                        path: join(&base, &path),
                        name: name.clone(),
                        seen: seen.clone(),
                    });
                }
            }
            let deeper = seen.kind == Kind::Folder && levels.len() < DEPTH;
            if deeper
                && let Some(level) = levels.last().and_then(|level| level.below(&name, path, after, left))
            {
                spare(&mut levels, left.saturating_sub(level.names.len()));
                levels.push(level);
            }
        }
        Ok(page)
    }

    /// The prefix of the paths below a place.
    fn base(&self, place: &Place<'_>) -> String {
        let path = place.path.to_str().filter(|path| *path != ".").unwrap_or_default();
        if self.is_cwd(place.root) {
            return path.to_owned();
        }
        join(&place.root.path.to_string_lossy(), path)
    }
}

impl Place<'_> {
    fn folder(&self) -> Result<Dir, FileError> {
        if self.root.dir.metadata(&self.path)?.is_dir() {
            Ok(self.root.dir.open_dir(&self.path)?)
        } else {
            Err(FileError::NotAFolder)
        }
    }
}

impl Level {
    fn open(folder: Dir, path: String, after: Option<&str>, max: usize) -> Result<Self, FileError> {
        // Start in the directory in which the previous page ended. Otherwise everything is new.
        let rest = match after {
            Some(after) if path.is_empty() => Some(after),
            Some(after) => after.strip_prefix(&*path).and_then(|rest| rest.strip_prefix('/')),
            None => None,
        };
        let from = rest.map_or(From::First, |rest| From::At(rest.split('/').next().unwrap_or_default()));
        let (names, cut) = names(&folder, from, max)?;
        Ok(Self { folder, path, names, cut })
    }

    /// Opens a child directory. Returns `None` if it cannot be read or is not a directory any more.
    fn below(&self, name: &str, path: String, after: Option<&str>, max: usize) -> Option<Self> {
        Self::open(step(&self.folder, OsStr::new(name)).ok()?, path, after, max).ok()
    }
}

/// Discards names that the search will not visit, because deeper entries precede them. `room` is the total
/// number that is left.
fn spare(levels: &mut [Level], mut room: usize) {
    for level in levels.iter_mut().rev() {
        if level.names.len() > room {
            level.names.truncate(room);
            level.cut = true;
        }
        room -= level.names.len();
    }
}

/// The first `max` names of a directory in order, and whether there are more. Skips names that are not UTF-8.
fn names(folder: &Dir, from: From<'_>, max: usize) -> Result<(VecDeque<String>, bool), FileError> {
    let (mut kept, mut cut) = (BTreeSet::new(), false);
    for entry in folder.entries()? {
        let Ok(name) = entry?.file_name().into_string() else { continue };
        let wanted = match from {
            From::First => true,
            From::At(first) => &*name >= first,
            From::After(last) => &*name > last,
        };
        if wanted && kept.insert(name) && kept.len() > max {
            kept.pop_last();
            cut = true;
        }
    }
    Ok((kept.into_iter().collect(), cut))
}

fn look(folder: &Dir, name: &str) -> Option<Seen> {
    statat(folder, name, AtFlags::SYMLINK_NOFOLLOW).ok().map(Seen::from)
}

fn join(folder: &str, name: &str) -> String {
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
        page.found.iter().map(|found| &*found.path).collect()
    }

    fn ground() -> (tempfile::TempDir, Workspace) {
        let dir = tempfile::tempdir().unwrap();
        for folder in ["w/a/deep", "w/b", "more"] {
            std::fs::create_dir_all(dir.path().join(folder)).unwrap();
        }
        for file in ["w/a/deep/x.rs", "w/a/x.rs", "w/a.rs", "w/b/y.rs", "w/z", "more/x.rs"] {
            std::fs::write(dir.path().join(file), file).unwrap();
        }
        std::os::unix::fs::symlink("a", dir.path().join("w/link")).unwrap();
        let root = dir.path().canonicalize().unwrap();
        let workspaces = Workspaces::new(&root, &[]).unwrap();
        let workspace = workspaces.open(&root.join("w"), &[root.join("more")]).unwrap();
        (dir, workspace)
    }

    #[test]
    fn a_folder_is_listed_by_name_and_page() {
        let (dir, workspace) = ground();
        let first = workspace.list(".", None, 3).unwrap();
        assert_eq!(paths(&first), ["a", "a.rs", "b"]);
        let kinds: Vec<Kind> = first.found.iter().map(|found| found.seen.kind).collect();
        assert_eq!(kinds, [Kind::Folder, Kind::File, Kind::Folder]);
        assert_eq!(first.found[1].seen.size, 6);
        let second = workspace.list(".", first.next.as_deref(), 3).unwrap();
        assert_eq!(paths(&second), ["link", "z"]);
        assert_eq!((second.found[0].seen.kind, second.next), (Kind::Link, None));
        assert_eq!(paths(&workspace.list("link", None, 9).unwrap()), ["link/deep", "link/x.rs"]);
        let more = dir.path().canonicalize().unwrap().join("more");
        let listed = workspace.list(more.to_str().unwrap(), None, 9).unwrap();
        assert_eq!(listed.found[0].path, format!("{}/x.rs", more.display()));
        assert!(workspace.open_file(&listed.found[0].path).is_ok(), "a listed path can be opened");
        assert!(matches!(workspace.list("z", None, 9), Err(FileError::NotAFolder)));
        assert!(matches!(workspace.list("none", None, 9), Err(FileError::Missing)));
    }

    #[test]
    fn a_search_goes_on_where_it_was_cut_whatever_the_size_of_its_pages() {
        let (_dir, workspace) = ground();
        let everything = ["a", "a/deep", "a/deep/x.rs", "a/x.rs", "a.rs", "b", "b/y.rs", "link", "z"];
        let files = ["a/deep/x.rs", "a/x.rs", "a.rs", "b/y.rs"];
        for (text, wanted) in [("", &everything[..]), ("*.rs", &files[..])] {
            let pattern = Pattern::new(text);
            for (limit, names) in [(1, 100), (2, 100), (100, 100), (100, 4), (1, 5)] {
                let (mut all, mut after) = (Vec::new(), None);
                for _ in 0..50 {
                    let extent = Extent { limit, names };
                    let page = workspace.find(".", &pattern, after.as_deref(), extent).unwrap();
                    assert!(page.found.len() <= limit);
                    all.extend(page.found.into_iter().map(|found| found.path));
                    after = page.next;
                    if after.is_none() {
                        break;
                    }
                }
                assert_eq!(all, wanted, "{text:?} by {limit} of {names}");
                assert_eq!(after, None, "the search ends");
            }
        }
        let below = workspace.find("a", &Pattern::new("x"), None, Extent { limit: 9, names: 9 }).unwrap();
        assert_eq!(paths(&below), ["a/deep/x.rs", "a/x.rs"]);
    }

    #[test]
    fn a_loop_of_folders_is_not_gone_through() {
        let (dir, workspace) = ground();
        std::os::unix::fs::symlink("..", dir.path().join("w/b/up")).unwrap();
        let extent = Extent { limit: 1000, names: 1000 };
        let page = workspace.find(".", &Pattern::new("up"), None, extent).unwrap();
        assert_eq!(paths(&page), ["b/up"]);
    }
}
