//! The metadata of a file.

use std::io;
use std::os::fd::AsFd;

use cap_std::fs::Dir;
use rustix::fs::{AtFlags, FileType, Stat, chownat, fstat, statat};
use rustix::io::Errno;
use rustix::path::Arg;
use rustix::process::{Gid, Uid, geteuid};

use super::error::FileError;
use base::types::Timestamp;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EntryKind {
    File,
    Directory,
    /// A symbolic link, whatever its target.
    Link,
    /// A FIFO, a socket, or a device.
    Other,
}

/// The metadata of a file at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileStat {
    pub kind: EntryKind,
    pub size: u64,
    pub modified_at: Timestamp,
    /// A strong entity tag in the syntax of HTTP. It changes with every write: the kernel updates the ctime,
    /// and a replaced file has another inode.
    pub etag: String,
    pub(super) mode: u32,
    pub(super) owner: Owner,
}

impl From<Stat> for FileStat {
    fn from(stat: Stat) -> Self {
        let kind = match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => EntryKind::File,
            FileType::Directory => EntryKind::Directory,
            FileType::Symlink => EntryKind::Link,
            _ => EntryKind::Other,
        };
        let size = u64::try_from(stat.st_size).unwrap_or_default();
        let millis = i64::try_from(stat.st_mtime_nsec).unwrap_or_default() / 1_000_000;
        let time = |seconds: i64, nanos| format!("{seconds:x}.{nanos:x}");
        let modified = time(stat.st_mtime, stat.st_mtime_nsec);
        let changed = time(stat.st_ctime, stat.st_ctime_nsec);
        let modified_at = stat.st_mtime.saturating_mul(1000).saturating_add(millis);
        Self {
            kind,
            size,
            modified_at: Timestamp::from_millis(modified_at),
            etag: format!("\"{:x}-{size:x}-{modified}-{changed}\"", stat.st_ino),
            mode: stat.st_mode,
            owner: Owner::from(&stat),
        }
    }
}

impl FileStat {
    /// Whether the owner may execute the file.
    pub fn is_executable(&self) -> bool {
        self.mode & 0o100 != 0
    }

    /// The metadata of an entry, and not of the target of a link. `None` if there is no entry with this name.
    pub(super) fn of_entry(folder: &Dir, name: impl Arg) -> Result<Option<Self>, FileError> {
        match statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(stat.into())),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    pub(super) fn require_regular(self) -> Result<Self, FileError> {
        if self.kind == EntryKind::File {
            Ok(self)
        } else {
            Err(FileError::NotAFile)
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EntityTags {
    /// `*`: any existing file.
    Any,
    /// The strong tags of the list. Weak tags are omitted, because they never match.
    Listed(Vec<String>),
}

impl EntityTags {
    /// Whether the condition matches this entity tag. `None` means that the file does not exist.
    pub fn matches(&self, etag: Option<&str>) -> bool {
        match (self, etag) {
            (_, None) => false,
            (Self::Any, Some(_)) => true,
            (Self::Listed(tags), Some(etag)) => tags.iter().any(|tag| tag == etag),
        }
    }
}

/// A precondition of a change (RFC 9110, section 13).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Precondition {
    pub if_match: Option<EntityTags>,
    pub if_none_match: Option<EntityTags>,
}

impl Precondition {
    pub(super) fn check(&self, etag: Option<&str>) -> Result<(), FileError> {
        let matches = |tags: &Option<EntityTags>| tags.as_ref().map(|tags| tags.matches(etag));
        let other = matches(&self.if_match) == Some(false);
        let known = matches(&self.if_none_match) == Some(true);
        if known && self.if_none_match == Some(EntityTags::Any) {
            Err(FileError::Exists)
        } else if other || known {
            Err(FileError::Changed)
        } else {
            Ok(())
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Owner {
    user: Uid,
    group: Gid,
}

impl From<&Stat> for Owner {
    fn from(stat: &Stat) -> Self {
        Self {
            user: Uid::from_raw(stat.st_uid),
            group: Gid::from_raw(stat.st_gid),
        }
    }
}

impl Owner {
    pub(super) fn of(opened: impl AsFd) -> io::Result<Self> {
        Ok(Self::from(&fstat(opened)?))
    }

    /// Makes this the owner of a file or folder that the gateway has created. A gateway that is not root skips this:
    /// its files already have the right owner.
    pub(super) fn give(self, created: impl AsFd) -> io::Result<()> {
        if geteuid().is_root() {
            let flags = AtFlags::EMPTY_PATH;
            chownat(created, "", Some(self.user), Some(self.group), flags)?;
        }
        Ok(())
    }

    /// Whether a gateway that runs as root may read an open file for an agent. `self` is the owner of the agent's
    /// folder. An agent can create a hard link there to a file of another user, and could then read the file through
    /// the gateway.
    pub(super) fn permits(self, file: &Stat) -> bool {
        !geteuid().is_root() || file.st_nlink <= 1 || Self::from(file).user == self.user
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn preconditions_are_those_of_http() {
        let listed = |tags: &[&str]| {
            Some(EntityTags::Listed(
                tags.iter().map(|&tag| tag.to_owned()).collect(),
            ))
        };
        let some = Some("\"a\"");
        let none = None;
        for (if_match, if_none_match, etag, holds) in [
            (None, None, some, true),
            (None, None, none, true),
            (Some(EntityTags::Any), None, some, true),
            (Some(EntityTags::Any), None, none, false),
            (listed(&["\"b\"", "\"a\""]), None, some, true),
            (listed(&["\"b\""]), None, some, false),
            (listed(&[]), None, some, false),
            (listed(&["\"a\""]), None, none, false),
            (None, Some(EntityTags::Any), some, false),
            (None, Some(EntityTags::Any), none, true),
            (None, listed(&["\"a\""]), some, false),
            (None, listed(&["\"b\""]), some, true),
        ] {
            let expected = Precondition {
                if_match,
                if_none_match,
            };
            assert_eq!(expected.check(etag).is_ok(), holds, "{expected:?} {etag:?}");
        }
    }
}
