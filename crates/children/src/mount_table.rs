//! The mounts of this process (`proc_pid_mountinfo(5)`): the mount that shows a path, and all paths that show a folder.

use std::collections::HashSet;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

const FILE: &str = "/proc/self/mountinfo";
/// A file in `/proc` has no size, and a reader that begins with a small buffer needs ten calls.
const TYPICAL_BYTES: usize = 16 << 10;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Mount {
    pub(super) id: u64,
    /// The mount below its mount point.
    pub(super) parent: u64,
    /// The device number of the file system, as in `8:1`.
    pub(super) device: String,
    /// The folder of the file system that is mounted.
    pub(super) root: PathBuf,
    pub(super) point: PathBuf,
    pub(super) is_read_only: bool,
    /// The type of the file system, as in `tmpfs`.
    pub(super) file_system: String,
}

impl Mount {
    pub(super) fn is_control_groups(&self) -> bool {
        matches!(&*self.file_system, "cgroup" | "cgroup2")
    }
}

/// A file or folder, independent of the mount that shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Location {
    device: String,
    /// The path in the file system.
    path: PathBuf,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct ShownPath {
    pub(super) path: PathBuf,
    /// The path is a mount of a folder below the location.
    pub(super) is_part: bool,
}

#[derive(Debug)]
pub(super) struct MountTable {
    mounts: Vec<Mount>,
    /// The lowest mount at `/`. A process in a changed root may see none.
    root: Option<usize>,
}

impl MountTable {
    pub(super) fn read() -> io::Result<Self> {
        Self::read_from(&Self::open()?)
    }

    /// Opens the table of the current mount namespace for [`MountTable::read_from`].
    pub(super) fn open() -> io::Result<File> {
        File::open(FILE)
    }

    /// Reads the current state of an open table, also after `/proc` has changed.
    pub(super) fn read_from(mut file: &File) -> io::Result<Self> {
        let mut text = Vec::with_capacity(TYPICAL_BYTES);
        file.rewind()?;
        file.read_to_end(&mut text)?;
        Ok(Self::parse(&text))
    }

    pub(super) fn parse(text: &[u8]) -> Self {
        let lines = text.split(|byte| *byte == b'\n');
        let mounts: Vec<Mount> = lines.filter_map(parse_mount).collect();
        let ids: HashSet<u64> = mounts.iter().map(|mount| mount.id).collect();
        let root = mounts.iter().position(|mount| {
            mount.point == Path::new("/")
                && (mount.parent == mount.id || !ids.contains(&mount.parent))
        });
        Self { mounts, root }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Mount> {
        self.mounts.iter()
    }

    /// The mounts that no other mount covers.
    pub(super) fn reachable(&self) -> impl Iterator<Item = &Mount> {
        self.iter().filter(|mount| self.shows(mount, &mount.point))
    }

    /// The mount that shows an absolute path without symbolic links.
    pub(super) fn at(&self, path: &Path) -> Option<&Mount> {
        let mut current = &self.mounts[self.root?];
        while let Some(covering) = self.on_the_way(current, path) {
            current = covering;
        }
        Some(current)
    }

    /// The first mount on top of `below` that a walk along the path enters.
    fn on_the_way(&self, below: &Mount, path: &Path) -> Option<&Mount> {
        let on_top = self.iter().filter(|mount| {
            mount.parent == below.id && mount.id != below.id && is_at_or_below(path, &mount.point)
        });
        on_top.min_by_key(|mount| mount.point.as_os_str().len())
    }

    fn shows(&self, mount: &Mount, path: &Path) -> bool {
        self.at(path).is_some_and(|shown| shown.id == mount.id)
    }

    /// The file or folder at a path. It need not exist.
    pub(super) fn location(&self, path: &Path) -> Option<Location> {
        let mount = self.at(path)?;
        let below = path.strip_prefix(&mount.point).ok()?;
        Some(Location {
            device: mount.device.clone(),
            path: join(&mount.root, below),
        })
    }

    /// All paths that show a location or a part of it: a bind mount shows a folder at a second path.
    pub(super) fn paths_of(&self, location: &Location) -> Vec<ShownPath> {
        let same_device = self.iter().filter(|mount| mount.device == location.device);
        let shown = same_device.filter_map(|mount| {
            let shown = match location.path.strip_prefix(&mount.root) {
                Ok(below) => ShownPath {
                    path: join(&mount.point, below),
                    is_part: false,
                },
                Err(_) if mount.root.starts_with(&location.path) => ShownPath {
                    path: mount.point.clone(),
                    is_part: true,
                },
                Err(_) => return None,
            };
            self.shows(mount, &shown.path).then_some(shown)
        });
        shown.collect()
    }
}

/// As `Path::starts_with`, for paths as the kernel writes them. A start compares thousands of them, and the parts of a path
/// need not be read for that.
fn is_at_or_below(path: &Path, folder: &Path) -> bool {
    let folder = folder.as_os_str().as_bytes();
    let below = path.as_os_str().as_bytes().strip_prefix(folder);
    below.is_some_and(|below| matches!(below.first(), None | Some(b'/')) || folder == b"/")
}

/// `Path::join` with an empty path would add a separator.
pub(super) fn join(folder: &Path, below: &Path) -> PathBuf {
    if below.as_os_str().is_empty() {
        folder.to_owned()
    } else {
        folder.join(below)
    }
}

/// A dash separates a variable number of fields from the type.
fn parse_mount(line: &[u8]) -> Option<Mount> {
    let mut fields = line.split(|byte| *byte == b' ');
    let text = |field: &[u8]| String::from_utf8_lossy(field).into_owned();
    let path = |field: &[u8]| PathBuf::from(OsString::from_vec(unescaped(field)));
    let id = text(fields.next()?);
    let parent = text(fields.next()?);
    let device = text(fields.next()?);
    let root = path(fields.next()?);
    let point = path(fields.next()?);
    let is_read_only = fields.next()?.split(|byte| *byte == b',').next() == Some(b"ro");
    let file_system = fields.skip_while(|field| *field != b"-").nth(1)?;
    Some(Mount {
        id: id.parse().ok()?,
        parent: parent.parse().ok()?,
        device,
        root,
        point,
        is_read_only,
        file_system: text(file_system),
    })
}

/// Decodes the octal escapes of spaces, tabs, line breaks and backslashes.
fn unescaped(field: &[u8]) -> Vec<u8> {
    let mut decoded = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((first, tail)) = rest.split_first() {
        let code = tail
            .get(..3)
            .and_then(|digits| std::str::from_utf8(digits).ok());
        let escaped = code.and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match escaped {
            Some(byte) if *first == b'\\' => {
                decoded.push(byte);
                rest = &tail[3..];
            }
            _ => {
                decoded.push(*first);
                rest = tail;
            }
        }
    }
    decoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_of_mount_points_are_decoded() {
        assert_eq!(unescaped(br"/a\040b\134c"), b"/a b\\c");
        assert_eq!(unescaped(br"/a\9"), br"/a\9");
    }

    #[test]
    fn optional_fields_of_a_mount_are_skipped() {
        let line =
            b"41 31 0:38 /a /sys/fs/cgroup ro,nosuid shared:9 master:1 - cgroup2 cgroup2 rw,nsdelegate";
        assert_eq!(
            parse_mount(line),
            Some(Mount {
                id: 41,
                parent: 31,
                device: "0:38".to_owned(),
                root: "/a".into(),
                point: "/sys/fs/cgroup".into(),
                is_read_only: true,
                file_system: "cgroup2".to_owned(),
            })
        );
        assert_eq!(parse_mount(b""), None);
    }

    /// A disk at `/`, a folder of it at `/srv/bound`, and another disk at `/tmp` that covers `/tmp/below`.
    const TABLE: &[u8] = b"1 0 8:1 / / rw - ext4 a rw
2 1 8:1 /home/ann /srv/bound rw - ext4 a rw
3 1 8:2 / /tmp/below rw - ext4 b rw
4 1 8:3 / /tmp rw - tmpfs c rw
5 4 8:4 / /tmp rw - tmpfs d rw
";

    #[test]
    fn topmost_mount_shows_a_path() {
        let table = MountTable::parse(TABLE);
        let at = |path: &str| table.at(Path::new(path)).map(|mount| mount.id);
        assert_eq!(at("/"), Some(1));
        assert_eq!(at("/srv/bound/file"), Some(2));
        assert_eq!(at("/srv/boundary"), Some(1));
        assert_eq!(at("/tmp"), Some(5));
        assert_eq!(at("/tmp/below/file"), Some(5), "a later mount covers it");
        let reachable: Vec<u64> = table.reachable().map(|mount| mount.id).collect();
        assert_eq!(reachable, [1, 2, 5]);
    }

    #[test]
    fn bind_mounts_show_a_folder_at_a_second_path() {
        let table = MountTable::parse(TABLE);
        let paths = |path: &str| {
            let location = table.location(Path::new(path)).unwrap();
            let shown = table.paths_of(&location).into_iter();
            shown
                .map(|shown| (shown.path.to_str().unwrap().to_owned(), shown.is_part))
                .collect::<Vec<_>>()
        };
        let owned = |path: &str, is_part| (path.to_owned(), is_part);
        let both = [owned("/home/ann/a", false), owned("/srv/bound/a", false)];
        assert_eq!(paths("/home/ann/a"), both);
        assert_eq!(paths("/srv/bound/a"), both);
        let parent = [owned("/home", false), owned("/srv/bound", true)];
        assert_eq!(paths("/home"), parent);
        assert_eq!(paths("/home/other"), [owned("/home/other", false)]);
    }

    #[test]
    fn own_table_has_a_root() {
        let table = MountTable::read().unwrap();
        let root = table.at(Path::new("/proc/self")).expect("a root");
        assert_eq!(root.file_system, "proc");
    }
}
