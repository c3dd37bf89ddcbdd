//! The users of children, with `isolation.run_as`: each home of an agent has its own user.
//!
//! Sessions of one agent and tenant share a home and its files, so they share its user. The owner of the home on disk
//! records the user. It stays the same after a restart, and becomes free only after the end of the home.
//!
//! The group of a user has the same number, and the user has no other group. A new home gets a user that owns no other
//! home and no workspace, and has no process. A user stays assigned until the gateway ends, also after a deletion of
//! its home: a process of the home can still run.

use std::collections::{BTreeSet, HashMap};
use std::ffi::CStr;
use std::fs::{self, Permissions};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, chownat, fchown, fstat, openat};
use rustix::io::Errno;
use rustix::process::{Gid, Uid, geteuid};
use rustix::thread::{CapabilitySet, capabilities};

use super::policy::UserRange;
use crate::procfs;
use base::shutdown::lock_or_abort;

/// The rights to start and stop children of other users, and to manage their files.
const CAPABILITIES: [CapabilitySet; 6] = [
    CapabilitySet::CHOWN,
    CapabilitySet::DAC_OVERRIDE,
    CapabilitySet::FOWNER,
    CapabilitySet::KILL,
    CapabilitySet::SETGID,
    CapabilitySet::SETUID,
];

/// Why the gateway cannot use `isolation.run_as`.
#[derive(Debug, thiserror::Error)]
pub enum UsersError {
    #[error(
        "`isolation.run_as` needs a gateway that runs as root: start it as root, or remove the key"
    )]
    NotRoot,
    #[error("`isolation.run_as` needs a gateway with the capabilities {0}")]
    Capabilities(String),
    #[error(
        "the user ids {range} of `isolation.run_as` do not exist in the user namespace of the gateway: compare them \
         with /proc/self/{map}"
    )]
    Unmapped { range: UserRange, map: &'static str },
    #[error("could not permit agents to reach the folders below {}", path.display())]
    Folder { path: PathBuf, source: io::Error },
}

/// Why a child has no user.
#[derive(Debug, thiserror::Error)]
pub enum UserError {
    #[error(
        "the range {range} of `isolation.run_as` is used up: enlarge it, or delete the homes of removed agents below \
         {} and restart the gateway", homes.display()
    )]
    UsedUp { range: UserRange, homes: PathBuf },
    #[error(
        "an agent with a user of `isolation.run_as` cannot use the home {}: set `home = \"own\"` in its entry",
        home.display()
    )]
    ForeignHome { home: PathBuf },
    #[error("could not change the owner of {}", path.display())]
    Owner { path: PathBuf, source: io::Error },
}

/// Assigns users to homes. Cheap to clone. Its methods block on the file system.
#[derive(Debug, Clone)]
pub struct AgentUsers(Arc<Assignment>);

#[derive(Debug)]
struct Assignment {
    range: UserRange,
    /// The parent of the homes: `<homes>/<tenant>/<agent>`.
    homes: PathBuf,
    /// The parent of the workspaces that the gateway creates.
    workspaces: PathBuf,
    /// The users of the homes that this gateway process has used. A user stays assigned until its end, because a process
    /// of a deleted home can still run.
    assigned: Mutex<HashMap<PathBuf, u32>>,
}

/// The users of agents without `isolation.run_as`: ids beyond those that systemd assigns to containers, or ids that exist in most
/// user namespaces.
const DEFAULT_RANGES: [&str; 2] = ["1900000000-1900065535", "20000-60000"];

/// The range of a gateway that runs as root and can use it.
pub fn default_users() -> Option<UserRange> {
    let mut ranges = DEFAULT_RANGES.iter().filter_map(|range| range.parse().ok());
    ranges.find(|range| check(*range).is_ok() && !is_delegated(*range))
}

/// Whether a person of this machine can become a user of the range (`subuid(5)`, `subgid(5)`).
fn is_delegated(range: UserRange) -> bool {
    ["/etc/subuid", "/etc/subgid"].iter().any(|file| {
        let text = fs::read_to_string(file).unwrap_or_default();
        delegates(&text, range)
    })
}

fn delegates(text: &str, range: UserRange) -> bool {
    text.lines().any(|line| {
        let mut numbers = line.split(':').skip(1).map(str::parse::<u64>);
        let (Some(Ok(start)), Some(Ok(count))) = (numbers.next(), numbers.next()) else {
            return false;
        };
        start <= u64::from(range.last()) && u64::from(range.first()) < start + count
    })
}

/// Checks that this process can use the range.
fn check(range: UserRange) -> Result<(), UsersError> {
    if !geteuid().is_root() {
        return Err(UsersError::NotRoot);
    }
    check_capabilities()?;
    for map in ["uid_map", "gid_map"] {
        let text = fs::read_to_string(format!("/proc/self/{map}"));
        if text.is_ok_and(|text| !is_mapped(&text, range)) {
            return Err(UsersError::Unmapped { range, map });
        }
    }
    Ok(())
}

impl AgentUsers {
    /// Checks that this process can use the range. Permits users to enter the folders of the gateway that contain homes
    /// and workspaces, without the right to list them.
    pub fn open(
        range: UserRange,
        data: &Path,
        homes: PathBuf,
        workspaces: PathBuf,
    ) -> Result<Self, UsersError> {
        check(range)?;
        for folder in [data, &homes, &workspaces] {
            if folder.starts_with(data) {
                make_searchable(folder).map_err(|source| UsersError::Folder {
                    path: folder.to_owned(),
                    source,
                })?;
            }
        }
        Ok(Self(Arc::new(Assignment {
            range,
            homes,
            workspaces,
            assigned: Mutex::default(),
        })))
    }

    /// The user of a home. Makes it the owner of the home, if it is not yet.
    pub(crate) fn user_of(&self, home: &Path) -> Result<u32, UserError> {
        if !home.starts_with(&self.0.homes) {
            return Err(UserError::ForeignHome {
                home: home.to_owned(),
            });
        }
        let failed = |source| UserError::Owner {
            path: home.to_owned(),
            source,
        };
        let mut builder = fs::DirBuilder::new();
        builder.recursive(true).mode(0o700);
        builder.create(home).map_err(failed)?;
        let mut assigned = lock_or_abort(self.0.assigned.lock());
        let owner = fs::metadata(home).map_err(failed)?.uid();
        let user = match assigned.get(home) {
            Some(user) => *user,
            None => self.0.choose(home, owner, &assigned)?,
        };
        if owner != user {
            tracing::info!(home = %home.display(), user, "the home of an agent has a new owner");
            give_tree(home, user).map_err(failed)?;
        }
        // The tenant's folder.
        if let Some(parent) = home.parent() {
            make_searchable(parent).map_err(failed)?;
        }
        assigned.insert(home.to_owned(), user);
        Ok(user)
    }

    /// Makes the user of a home the only one that can use a folder that the gateway created for its agent.
    pub fn own_folder(&self, folder: &Path, home: &Path) -> Result<(), UserError> {
        let user = self.user_of(home)?;
        let failed = |source| UserError::Owner {
            path: folder.to_owned(),
            source,
        };
        if fs::symlink_metadata(folder).map_err(failed)?.uid() == user {
            return Ok(());
        }
        let given = give_tree(folder, user);
        given
            .and_then(|()| give_new_folder(folder, user))
            .map_err(failed)
    }
}

impl Assignment {
    /// The owner of the home, if no other home has it. Otherwise a user of the range that owns nothing and has no process.
    fn choose(
        &self,
        home: &Path,
        owner: u32,
        assigned: &HashMap<PathBuf, u32>,
    ) -> Result<u32, UserError> {
        let homes = children(&self.homes).into_iter();
        let homes = homes.flat_map(|tenant| children(&tenant));
        let others = homes.filter(|other| other != home);
        let mut used: BTreeSet<u32> = others.filter_map(|other| owner_of(&other)).collect();
        used.extend(assigned.values());
        if self.range.contains(owner) && !used.contains(&owner) {
            return Ok(owner);
        }
        let workspaces = children(&self.workspaces);
        used.extend(workspaces.iter().filter_map(|folder| owner_of(folder)));
        used.extend(procfs::users());
        let users = self.range.first()..=self.range.last();
        // The user after the last one: files of a previous user elsewhere get a new owner as late as possible.
        let last = used.range(users.clone()).next_back();
        let next = last.map_or(self.range.first(), |last| last + 1);
        let mut candidates = (next..=self.range.last()).chain(users);
        let free = candidates.find(|user| !used.contains(user));
        free.ok_or_else(|| UserError::UsedUp {
            range: self.range,
            homes: self.homes.clone(),
        })
    }
}

/// Makes a user of `isolation.run_as` the owner of a pipe or a terminal, so that its program can open it by name.
pub(crate) fn give(descriptor: impl AsFd, user: Option<u32>) -> io::Result<()> {
    let Some(user) = user else { return Ok(()) };
    let (owner, group) = ids(user);
    Ok(fchown(descriptor, Some(owner), Some(group))?)
}

fn children(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten();
    entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .collect()
}

fn owner_of(path: &Path) -> Option<u32> {
    fs::metadata(path).ok().map(|meta| meta.uid())
}

fn check_capabilities() -> Result<(), UsersError> {
    let effective = capabilities(None).map_or(CapabilitySet::empty(), |sets| sets.effective);
    let needed: CapabilitySet = CAPABILITIES.into_iter().collect();
    let missing = needed.difference(effective);
    let missing = missing.iter_names().map(|(name, _)| format!("CAP_{name}"));
    let missing: Vec<String> = missing.collect();
    if missing.is_empty() {
        Ok(())
    } else {
        Err(UsersError::Capabilities(missing.join(", ")))
    }
}

/// Whether a map of ids (`user_namespaces(7)`) contains the range.
fn is_mapped(map: &str, range: UserRange) -> bool {
    let mut next = u64::from(range.first());
    let interval = |line: &str| {
        let words = line.split_whitespace();
        let numbers: Vec<u64> = words.filter_map(|word| word.parse().ok()).collect();
        let [inside, _, count] = numbers[..] else {
            return None;
        };
        Some((inside, inside + count))
    };
    let mut mapped: Vec<(u64, u64)> = map.lines().filter_map(interval).collect();
    mapped.sort_unstable();
    for (start, end) in mapped {
        if start <= next && next < end {
            next = end;
        }
    }
    next > u64::from(range.last())
}

/// An agent could nest folders until the recursion exhausts the stack or the file descriptors.
const MAX_DEPTH: usize = 128;

/// The permission to enter a folder, for everybody. It does not include the permission to list it.
const SEARCH: u32 = 0o011;

/// The owner and the group of everything that belongs to a user of `isolation.run_as`.
pub(crate) fn ids(user: u32) -> (Uid, Gid) {
    (Uid::from_raw(user), Gid::from_raw(user))
}

/// Makes the user the owner of a folder and of its content. The folder itself is last, so its owner shows that
/// the change is complete.
///
/// Files on other file systems, devices, and files of other users with several names keep their owner: they can be the
/// files of somebody else.
pub(super) fn give_tree(folder: &Path, user: u32) -> io::Result<()> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let opened = openat(CWD, folder, flags, Mode::empty())?;
    let mut transfer = Transfer {
        user,
        device: fstat(&opened)?.st_dev,
        kept: 0,
    };
    transfer.folder(&opened, 0)?;
    if transfer.kept > 0 {
        tracing::warn!(folder = %folder.display(), files = transfer.kept, "files with several names keep their owner");
    }
    Ok(())
}

/// Makes the user the owner of an empty folder, which only this user can enter.
pub(super) fn give_new_folder(folder: &Path, user: u32) -> io::Result<()> {
    let (owner, group) = ids(user);
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = openat(CWD, folder, flags, Mode::empty())?;
    rustix::fs::fchmod(&opened, Mode::RWXU)?;
    Ok(fchown(&opened, Some(owner), Some(group))?)
}

/// Permits users to reach the folders below a folder of the gateway.
pub(super) fn make_searchable(folder: &Path) -> io::Result<()> {
    let mode = fs::metadata(folder)?.permissions().mode();
    if mode & SEARCH == SEARCH {
        return Ok(());
    }
    fs::set_permissions(folder, Permissions::from_mode((mode & 0o7777) | SEARCH))
}

struct Transfer {
    user: u32,
    device: u64,
    /// The number of files with several names.
    kept: usize,
}

impl Transfer {
    fn folder(&mut self, folder: &OwnedFd, depth: usize) -> io::Result<()> {
        if depth > MAX_DEPTH {
            let text = format!("its folders are nested more than {MAX_DEPTH} times");
            return Err(io::Error::other(text));
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let listed = openat(folder, ".", flags, Mode::empty())?;
        for entry in Dir::read_from(&listed)? {
            let entry = entry?;
            if !matches!(entry.file_name().to_bytes(), b"." | b"..") {
                self.entry(folder, entry.file_name(), depth)?;
            }
        }
        self.give(folder)
    }

    fn entry(&mut self, folder: &OwnedFd, name: &CStr, depth: usize) -> io::Result<()> {
        // The descriptor stays the same file when a process replaces the name.
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened = match openat(folder, name, flags, Mode::empty()) {
            Ok(opened) => opened,
            Err(Errno::NOENT) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        let stat = fstat(&opened)?;
        if stat.st_dev != self.device {
            return Ok(());
        }
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => self.folder(&opened, depth + 1),
            FileType::RegularFile if stat.st_nlink > 1 && stat.st_uid != self.user => {
                self.kept += 1;
                Ok(())
            }
            FileType::RegularFile | FileType::Symlink | FileType::Fifo | FileType::Socket => {
                self.give(&opened)
            }
            _ => Ok(()),
        }
    }

    fn give(&self, opened: &OwnedFd) -> io::Result<()> {
        let (owner, group) = ids(self.user);
        let flags = AtFlags::EMPTY_PATH;
        Ok(chownat(opened, "", Some(owner), Some(group), flags)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(text: &str) -> UserRange {
        text.parse().unwrap()
    }

    #[test]
    fn map_of_a_user_namespace_contains_a_range() {
        let all = "         0          0 4294967295\n";
        assert!(is_mapped(all, range("100000-165535")));
        let container = "0 1000 1\n1 100000 65536\n";
        assert!(is_mapped(container, range("1-65533")));
        assert!(!is_mapped(container, range("65535-65537")));
        assert!(!is_mapped("0 1000 1\n", range("100000-165535")));
        assert!(
            is_mapped("10 0 5\n0 20 10\n", range("1-14")),
            "two adjacent lines"
        );
    }

    #[test]
    fn range_of_subordinate_ids_is_found() {
        let delegated = "# people\nada:100000:65536\n\nbroken:x:1\n";
        for (text, expected) in [
            ("100000-165535", true),
            ("165535-165600", true),
            ("165536-165600", false),
            ("99000-99999", false),
            ("1900000000-1900065535", false),
        ] {
            assert_eq!(delegates(delegated, range(text)), expected, "{text}");
        }
    }

    struct Folders(tempfile::TempDir);

    impl Folders {
        fn home(&self, agent: &str) -> PathBuf {
            let home = self.0.path().join("homes/default").join(agent);
            fs::create_dir_all(&home).unwrap();
            home
        }

        fn users(&self, text: &str) -> AgentUsers {
            for name in ["homes", "workspaces"] {
                fs::create_dir_all(self.0.path().join(name)).unwrap();
            }
            let data = self.0.path();
            AgentUsers::open(
                range(text),
                data,
                data.join("homes"),
                data.join("workspaces"),
            )
            .unwrap()
        }
    }

    /// Only root can change owners.
    fn as_root() -> Option<Folders> {
        let is_root = geteuid().is_root();
        if !is_root {
            eprintln!("this test needs root");
        }
        is_root.then(|| Folders(tempfile::tempdir().unwrap()))
    }

    #[test]
    fn each_home_keeps_its_user_after_a_restart() {
        let Some(folders) = as_root() else { return };
        let a = folders.home("a");
        let b = folders.home("b");
        fs::write(a.join("file"), "x").unwrap();
        let users = folders.users("300000-300009");
        assert_eq!(users.user_of(&a).unwrap(), 300_000);
        assert_eq!(users.user_of(&b).unwrap(), 300_001);
        assert_eq!(users.user_of(&a).unwrap(), 300_000);
        assert_eq!(owner_of(&a.join("file")), Some(300_000));
        let later = folders.users("300000-300009");
        assert_eq!(
            later.user_of(&b).unwrap(),
            300_001,
            "the owner on disk is the record"
        );
        assert_eq!(later.user_of(&a).unwrap(), 300_000);
        // Another range changes the owners.
        let other = folders.users("310000-310009");
        assert_eq!(other.user_of(&b).unwrap(), 310_000);
        assert_eq!(owner_of(&b), Some(310_000));
    }

    #[test]
    fn users_of_homes_workspaces_and_processes_are_not_free() {
        let Some(folders) = as_root() else { return };
        let users = folders.users("300100-300102");
        let workspace = folders.0.path().join("workspaces/one");
        fs::create_dir(&workspace).unwrap();
        users.own_folder(&workspace, &folders.home("a")).unwrap();
        assert_eq!(owner_of(&workspace), Some(300_100));
        assert_eq!(users.user_of(&folders.home("b")).unwrap(), 300_101);
        // Its processes can still run, so the user of a deleted home stays assigned.
        fs::remove_dir_all(folders.home("b")).unwrap();
        assert_eq!(users.user_of(&folders.home("c")).unwrap(), 300_102);
        let error = users.user_of(&folders.home("d")).unwrap_err();
        assert!(matches!(error, UserError::UsedUp { .. }), "{error}");
        assert!(error.to_string().contains("300100-300102"), "{error}");
        // The next gateway process knows the owners on disk: the home of `c`, and the workspace.
        fs::remove_dir_all(folders.home("a")).unwrap();
        let later = folders.users("300100-300102");
        assert_eq!(later.user_of(&folders.home("d")).unwrap(), 300_101);
        assert!(
            later.user_of(&folders.home("e")).is_err(),
            "its workspace still belongs to the user of `a`"
        );
    }

    #[test]
    fn home_of_the_operator_has_no_user() {
        let Some(folders) = as_root() else { return };
        let users = folders.users("300200-300201");
        let error = users.user_of(folders.0.path()).unwrap_err();
        assert!(matches!(error, UserError::ForeignHome { .. }), "{error}");
        assert_eq!(owner_of(folders.0.path()), Some(0));
    }
}

#[cfg(test)]
mod ownership_tests {
    use std::os::unix::fs::{MetadataExt, symlink};

    use super::*;

    #[test]
    fn owner_changes_below_a_folder_and_behind_no_link() {
        if !rustix::process::geteuid().is_root() {
            eprintln!("this test needs root");
            return;
        }
        let root = tempfile::tempdir().unwrap();
        let path = |name: &str| root.path().join(name);
        fs::create_dir_all(path("home/a/b")).unwrap();
        for name in ["outside", "linked", "home/a/b/file"] {
            fs::write(path(name), "x").unwrap();
        }
        symlink(path("outside"), path("home/link")).unwrap();
        fs::hard_link(path("linked"), path("home/hard")).unwrap();
        give_tree(&path("home"), 100_007).unwrap();
        let owner = |name: &str| {
            let meta = fs::symlink_metadata(path(name)).unwrap();
            (meta.uid(), meta.gid())
        };
        for name in ["home", "home/a", "home/a/b", "home/a/b/file", "home/link"] {
            assert_eq!(owner(name), (100_007, 100_007), "{name}");
        }
        assert_eq!(owner("outside"), (0, 0), "behind a link");
        assert_eq!(owner("linked"), (0, 0), "a file with another name");
    }

    #[test]
    fn deeply_nested_folders_are_an_error() {
        let root = tempfile::tempdir().unwrap();
        let nested = (0..=MAX_DEPTH + 1).fold(root.path().to_owned(), |path, _| path.join("d"));
        fs::create_dir_all(nested).unwrap();
        let own = rustix::process::geteuid().as_raw();
        let error = give_tree(root.path(), own).unwrap_err().to_string();
        assert!(error.contains("nested"), "{error}");
    }

    #[test]
    fn searchable_folder_is_not_listable() {
        let root = tempfile::tempdir().unwrap();
        fs::set_permissions(root.path(), Permissions::from_mode(0o700)).unwrap();
        make_searchable(root.path()).unwrap();
        assert_eq!(
            fs::metadata(root.path()).unwrap().permissions().mode() & 0o777,
            0o711
        );
    }
}
