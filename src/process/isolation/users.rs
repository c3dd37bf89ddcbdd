//! The users of children, with `isolation.run_as`: each home of an agent has its own user.
//!
//! Sessions of one agent and tenant share a home and its files, so they share its user. The owner of the home on disk
//! records the user. It stays the same after a restart, and becomes free only after the end of the home.
//!
//! The group of a user has the same number, and the user has no other group. A new home gets a user that owns no other
//! home and no workspace, and has no process. A user stays assigned until the gateway ends, also after a deletion of
//! its home: a process of the home can still run.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use rustix::fs::fchown;
use rustix::process::geteuid;
use rustix::thread::{CapabilitySet, capabilities};

use super::ownership;
use crate::process::procfs;
use crate::shutdown::lock_or_abort;
use crate::types::UserRange;

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
        "the range {range} of `isolation.run_as` is used up: enlarge it, or delete the homes of former agents below \
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

impl AgentUsers {
    /// Checks that this process can use the range. Permits users to enter the folders of the gateway that contain homes
    /// and workspaces, without the right to list them.
    pub fn open(
        range: UserRange,
        data: &Path,
        homes: PathBuf,
        workspaces: PathBuf,
    ) -> Result<Self, UsersError> {
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
        let own = [data, &homes, &workspaces]
            .into_iter()
            .filter(|folder| folder.starts_with(data));
        for folder in own {
            ownership::make_searchable(folder).map_err(|source| UsersError::Folder {
                path: folder.to_owned(),
                source,
            })?;
        }
        Ok(Self(Arc::new(Assignment {
            range,
            homes,
            workspaces,
            assigned: Mutex::default(),
        })))
    }

    /// The user of a home. Makes it the owner of the home, if it is not yet.
    pub(in crate::process) fn user_of(&self, home: &Path) -> Result<u32, UserError> {
        if !home.starts_with(&self.0.homes) {
            return Err(UserError::ForeignHome {
                home: home.to_owned(),
            });
        }
        let failed = |source| UserError::Owner {
            path: home.to_owned(),
            source,
        };
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(home)
            .map_err(failed)?;
        let mut assigned = lock_or_abort(self.0.assigned.lock());
        let owner = fs::metadata(home).map_err(failed)?.uid();
        let user = match assigned.get(home) {
            Some(user) => *user,
            None => self.0.choose(home, owner, &assigned)?,
        };
        if owner != user {
            tracing::info!(home = %home.display(), user, "the home of an agent has a new owner");
            ownership::give_tree(home, user).map_err(failed)?;
        }
        // The tenant's folder.
        if let Some(parent) = home.parent() {
            ownership::make_searchable(parent).map_err(failed)?;
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
        let given = ownership::give_tree(folder, user);
        given
            .and_then(|()| ownership::give_new_folder(folder, user))
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
        let tenants = children(&self.homes);
        let others = tenants
            .iter()
            .flat_map(|tenant| children(tenant))
            .filter(|other| other != home);
        let mut used: BTreeSet<u32> = others.filter_map(|other| owner_of(&other)).collect();
        used.extend(assigned.values());
        if self.range.contains(owner) && !used.contains(&owner) {
            return Ok(owner);
        }
        used.extend(
            children(&self.workspaces)
                .iter()
                .filter_map(|folder| owner_of(folder)),
        );
        used.extend(procfs::users());
        let users = self.range.first()..=self.range.last();
        // The user after the last one: files of a former user elsewhere get a new owner as late as possible.
        let next = used
            .range(users.clone())
            .next_back()
            .map_or(self.range.first(), |last| last + 1);
        let free = (next..=self.range.last())
            .chain(users)
            .find(|user| !used.contains(user));
        free.ok_or_else(|| UserError::UsedUp {
            range: self.range,
            homes: self.homes.clone(),
        })
    }
}

/// Makes a user of `isolation.run_as` the owner of a pipe or a terminal, so that its program can open it by name.
pub(in crate::process) fn give(descriptor: impl AsFd, user: Option<u32>) -> io::Result<()> {
    let Some(user) = user else { return Ok(()) };
    let (owner, group) = ownership::ids(user);
    Ok(fchown(descriptor, Some(owner), Some(group))?)
}

fn children(folder: &Path) -> Vec<PathBuf> {
    fs::read_dir(folder)
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path()))
        .collect()
}

fn owner_of(path: &Path) -> Option<u32> {
    fs::metadata(path).ok().map(|meta| meta.uid())
}

fn check_capabilities() -> Result<(), UsersError> {
    let effective = capabilities(None).map_or(CapabilitySet::empty(), |sets| sets.effective);
    let needed: CapabilitySet = CAPABILITIES.into_iter().collect();
    let missing: Vec<String> = needed
        .difference(effective)
        .iter_names()
        .map(|(name, _)| format!("CAP_{name}"))
        .collect();
    if missing.is_empty() {
        Ok(())
    } else {
        Err(UsersError::Capabilities(missing.join(", ")))
    }
}

/// Whether a map of ids (`user_namespaces(7)`) contains the range.
fn is_mapped(map: &str, range: UserRange) -> bool {
    let mut next = u64::from(range.first());
    let mut mapped: Vec<(u64, u64)> = map
        .lines()
        .filter_map(|line| {
            let numbers: Vec<u64> = line
                .split_whitespace()
                .filter_map(|word| word.parse().ok())
                .collect();
            let [inside, _, count] = numbers[..] else {
                return None;
            };
            Some((inside, inside + count))
        })
        .collect();
    mapped.sort_unstable();
    for (start, end) in mapped {
        if start <= next && next < end {
            next = end;
        }
    }
    next > u64::from(range.last())
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
        let (a, b) = (folders.home("a"), folders.home("b"));
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
