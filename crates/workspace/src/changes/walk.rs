//! Walks through a folder in a fixed order, within bounds. Links are visited and never followed.
//!
//! The order is that of the names in each directory, and the content of a directory follows its name. A walk that
//! reaches a bound has therefore visited exactly the paths up to one position of this order.

use std::cmp::Ordering;
use std::ffi::OsStr;
use std::time::Duration;

use cap_std::fs::Dir;
use rustix::fs::{AtFlags, FileType, Stat, statat};
use tokio::time::Instant;

use super::rules::IgnoreRules;
use crate::error::FileError;
use crate::roots::open_child;
use crate::stat::Owner;
use crate::tree::{Names, join, trim_names};

/// The maximum depth of a walk, and its number of open directories.
const DEPTH: usize = 64;
/// The maximum number of bytes of a path.
const PATH_BYTES: usize = 4096;
/// A walk through a directory checks the time after this number of names.
const NAMES_BETWEEN_CHECKS: usize = 1024;

/// An entry of the folder.
#[derive(Debug)]
pub(super) struct Found<'a> {
    pub(super) directory: &'a Dir,
    pub(super) name: &'a str,
    /// Relative to the folder.
    pub(super) path: &'a str,
    pub(super) stat: &'a Stat,
    /// Whether a `.gitignore` file ignores the entry or a directory above it.
    pub(super) ignored: bool,
}

/// Receives the entries of a walk.
pub(super) trait Visitor {
    /// Visits an entry. Returns whether the walk enters it, if it is a directory.
    fn visit(&mut self, found: &Found<'_>) -> bool;

    /// Reports a directory whose content is not visited: it cannot be read, or is too deep.
    fn skip(&mut self, path: &str);
}

/// The directories from the folder down to the current one.
struct Level {
    directory: Dir,
    path: String,
    names: Names,
    rules: IgnoreRules,
    /// Whether everything below is ignored.
    ignored: bool,
}

/// The remaining bounds of a walk.
#[derive(Debug, Clone, Copy)]
struct Budget {
    names: usize,
    path_bytes: usize,
    until: Instant,
}

/// Walks through a folder. Returns the last visited path if the walk stopped at a bound: it visited no later path.
pub(super) fn walk(
    root: Dir,
    bounds: &ChangeBounds,
    visitor: &mut impl Visitor,
) -> Result<Option<String>, FileError> {
    let owner = Owner::of(&root)?;
    let mut budget = Budget {
        names: bounds.max_names,
        path_bytes: bounds.max_path_bytes,
        until: Instant::now() + bounds.walk_time,
    };
    let mut levels = vec![Level::open(root, String::new(), false, owner, budget)?];
    let mut last = String::new();
    while let Some(level) = levels.last_mut() {
        let Some(name) = level.names.names.pop_front() else {
            if level.names.truncated {
                return Ok(Some(last));
            }
            levels.pop();
            continue;
        };
        let path = join(&level.path, &name);
        if !budget.spend(&path) {
            return Ok(Some(last));
        }
        if let Ok(stat) = statat(&level.directory, &*name, AtFlags::SYMLINK_NOFOLLOW) {
            let is_directory = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
            let ignored = is_ignored(&levels, &path, is_directory);
            let found = Found {
                directory: &levels[levels.len() - 1].directory,
                name: &name,
                path: &path,
                stat: &stat,
                ignored,
            };
            if visitor.visit(&found) && is_directory {
                match Level::below(&levels, &found, owner, budget) {
                    Some(level) => {
                        let unused = budget.names.saturating_sub(level.names.names.len());
                        trim_names(levels.iter_mut().map(|level| &mut level.names), unused);
                        levels.push(level);
                    }
                    None => visitor.skip(&path),
                }
            }
        }
        last = path;
    }
    Ok(None)
}

impl Level {
    fn open(
        directory: Dir,
        path: String,
        ignored: bool,
        owner: Owner,
        budget: Budget,
    ) -> Result<Self, FileError> {
        let may_continue = |at: usize| {
            at % NAMES_BETWEEN_CHECKS != NAMES_BETWEEN_CHECKS - 1 || Instant::now() < budget.until
        };
        let is_visited = |name: &str| name != ".git";
        Ok(Self {
            names: Names::read(&directory, budget.names, is_visited, may_continue)?,
            rules: IgnoreRules::of(&directory, owner),
            directory,
            path,
            ignored,
        })
    }
    /// Opens a directory of the last level as the next level.
    fn below(levels: &[Self], found: &Found<'_>, owner: Owner, budget: Budget) -> Option<Self> {
        if levels.len() >= DEPTH || found.path.len() > PATH_BYTES {
            return None;
        }
        let child = open_child(found.directory, OsStr::new(found.name)).ok()?;
        Self::open(child, found.path.to_owned(), found.ignored, owner, budget).ok()
    }
}

impl Budget {
    /// Uses up one name with its path. Returns false if the walk must stop.
    fn spend(&mut self, path: &str) -> bool {
        let names = self.names.checked_sub(1);
        let path_bytes = self.path_bytes.checked_sub(path.len());
        let (Some(names), Some(path_bytes)) = (names, path_bytes) else {
            return false;
        };
        self.names = names;
        self.path_bytes = path_bytes;
        Instant::now() < self.until
    }
}

/// Whether a pattern ignores a path. The patterns of the nearest directory decide.
fn is_ignored(levels: &[Level], path: &str, is_directory: bool) -> bool {
    let above = levels.last().is_some_and(|level| level.ignored);
    let decided = levels.iter().rev().find_map(|level| {
        let below = path.strip_prefix(&*level.path)?;
        let below = below.strip_prefix('/').unwrap_or(below);
        level.rules.ignores(below, is_directory)
    });
    above || decided.unwrap_or(false)
}

/// Compares two paths in the order of a walk.
pub(super) fn walk_order(a: &str, b: &str) -> Ordering {
    a.split('/').cmp(b.split('/'))
}

/// The bounds of a baseline, and of a comparison with it.
#[derive(Debug, Clone, Copy)]
pub struct ChangeBounds {
    /// The maximum number of names that a walk visits.
    pub max_names: usize,
    pub max_path_bytes: usize,
    /// The maximum size of a file whose content is stored or compared, in bytes.
    pub max_file_bytes: u64,
    /// The maximum number of bytes of all contents that a baseline adds to the disk, before their compression.
    pub max_new_bytes: u64,
    /// How long a baseline reads contents. After that it records only metadata.
    pub content_time: Duration,
    pub walk_time: Duration,
    /// The maximum number of files in the result of a comparison.
    pub max_changes: usize,
    /// The maximum time for reading the contents of changed files, to count their lines.
    pub count_time: Duration,
}

impl Default for ChangeBounds {
    fn default() -> Self {
        Self {
            max_names: 50_000,
            max_path_bytes: 16 << 20,
            max_file_bytes: 1 << 20,
            max_new_bytes: 64 << 20,
            content_time: Duration::from_secs(2),
            walk_time: Duration::from_secs(3),
            max_changes: 500,
            count_time: Duration::from_secs(1),
        }
    }
}
