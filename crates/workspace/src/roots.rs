//! Root directories as handles: the operator's roots, and a session's directories below them.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use cap_std::ambient_authority;
use cap_std::fs::Dir;
use rustix::fs::{Mode, OFlags, openat};

use super::error::FileError;
use base::types::{FolderError, GrantedFolders};
use children::{AgentUsers, UserError, check_real_folder};

/// An open directory, with the real path that it had when it was opened.
#[derive(Debug)]
pub(super) struct Root {
    pub(super) path: PathBuf,
    pub(super) dir: Dir,
}

/// The operator's workspace roots. Sessions get their own directories below the first one.
#[derive(Debug, Clone)]
pub struct Workspaces {
    roots: Arc<[Root]>,
    /// Folders outside of the roots in which one key, or one session, may work.
    granted: GrantedFolders,
    /// The owners of the directories of sessions, if they are not those of the gateway.
    users: Option<AgentUsers>,
}

/// The directories of one session: the working directory first, then the additional ones. A cheap handle.
#[derive(Debug, Clone)]
pub struct Workspace(Arc<[Root]>);

/// A path relative to one of a session's directories.
#[derive(Debug)]
pub(super) struct ResolvedPath<'a> {
    pub(super) root: &'a Root,
    /// Relative. `.` is the directory itself.
    pub(super) path: PathBuf,
}

impl Workspaces {
    /// Opens the canonical roots. Later changes to the directories above them have no effect. Blocks, like
    /// all methods of this module.
    pub fn new(root: &Path, allow: &[PathBuf]) -> io::Result<Self> {
        let open = |path: &Path| {
            let path = path.canonicalize()?;
            let dir = Dir::open_ambient_dir(&path, ambient_authority())?;
            Ok(Root { path, dir })
        };
        let all = std::iter::once(root).chain(allow.iter().map(PathBuf::as_path));
        Ok(Self {
            roots: all.map(open).collect::<io::Result<_>>()?,
            granted: GrantedFolders::default(),
            users: None,
        })
    }

    /// Sets the owners of the directories of sessions.
    #[must_use]
    pub fn with_users(self, users: Option<AgentUsers>) -> Self {
        Self { users, ..self }
    }

    /// The same roots, and folders outside of them.
    #[must_use]
    pub fn with_granted(&self, granted: GrantedFolders) -> Self {
        Self {
            granted,
            ..self.clone()
        }
    }

    /// The paths of the roots, then those of the granted folders.
    pub fn top_folders(&self) -> impl Iterator<Item = &Path> {
        let roots = self.roots.iter().map(|root| &*root.path);
        roots.chain(self.granted.iter().map(PathBuf::as_path))
    }

    /// Whether a real path contains the directories that [`Workspaces::create_directory`] creates.
    pub fn contains_created(&self, path: &Path) -> bool {
        let root = self.roots.first();
        root.is_some_and(|root| root.path.starts_with(path))
    }

    /// The name of the directory of [`Workspaces::create_directory`] that contains a real path, or is this path.
    pub fn created_parent<'a>(&self, path: &'a Path) -> Option<&'a str> {
        let below = path.strip_prefix(&self.roots.first()?.path).ok()?;
        below.iter().next()?.to_str()
    }

    /// Whether the gateway creates the directories of sessions in this one.
    pub(super) fn is_first_root(&self, path: &Path) -> bool {
        self.roots.first().is_some_and(|root| root.path == path)
    }

    /// Opens a directory as returned by [`Workspaces::resolve_directory`], to read its entries.
    pub(super) fn open_folder(&self, path: &Path) -> Result<Dir, FileError> {
        Ok(self.open_beneath(path)?.dir.open_dir(".")?)
    }

    /// Whether a real path lies below a root or a granted folder.
    pub(super) fn has(&self, path: &Path) -> bool {
        self.roots.iter().any(|root| path.starts_with(&root.path)) || self.granted.contains(path)
    }

    /// Makes a directory of [`Workspaces::create_directory`] usable for the agent with this home, and only for it.
    pub fn own_directory(&self, path: &Path, home: &Path) -> Result<(), UserError> {
        let users = self.users.as_ref();
        users.map_or(Ok(()), |users| users.own_folder(path, home))
    }

    /// Creates a directory below the first root.
    pub fn create_directory(&self, name: &str) -> io::Result<PathBuf> {
        let path = self.roots[0].path.join(name);
        std::fs::create_dir(&path).map_err(|error| {
            let path = path.display();
            io::Error::new(error.kind(), format!("could not create {path}: {error}"))
        })?;
        Ok(path)
    }

    /// Removes a directory that [`Workspaces::create_directory`] created, with its content.
    pub fn remove_directory(&self, name: &str) -> io::Result<()> {
        remove_folder(&self.roots[0].path.join(name))
    }

    /// The real path of an existing directory below a root. A relative path starts at the first root.
    pub fn resolve_directory(&self, requested: &str) -> Result<PathBuf, FileError> {
        if is_malformed(requested) {
            return Err(FileError::Malformed);
        }
        let path = self.roots[0].path.join(requested);
        // Only a path below the roots may reveal whether it exists. Otherwise a client could explore the file system.
        let real = match path.canonicalize() {
            Ok(real) if self.has(&real) => real,
            Err(_) if self.has(&path) => return Err(FileError::Missing),
            Ok(_) | Err(_) => return Err(FileError::OutsideRoots),
        };
        if real.is_dir() {
            Ok(real)
        } else {
            Err(FileError::NotADirectory)
        }
    }

    /// The real paths on the way to a requested path, from the top, also those of the links on it. Empty for a path that
    /// [`Workspaces::resolve_directory`] rejects as malformed.
    pub fn way_to(&self, requested: &str) -> Vec<PathBuf> {
        if is_malformed(requested) {
            return Vec::new();
        }
        let path = self.roots[0].path.join(requested);
        let parts = |path: &Path| -> Vec<_> {
            let parts = path.iter().rev();
            parts.map(OsStr::to_owned).collect()
        };
        let mut rest = parts(&path);
        let mut real = PathBuf::new();
        let mut way = Vec::new();
        let mut links = 0;
        while let Some(part) = rest.pop() {
            if part == ".." {
                real.pop();
                continue;
            }
            let next = real.join(part);
            way.push(next.clone());
            match std::fs::read_link(&next) {
                // The kernel follows no more links either.
                Ok(_) if links == MAX_LINKS => break,
                Ok(target) => {
                    links += 1;
                    rest.extend(parts(&target));
                }
                Err(_) => real = next,
            }
        }
        way
    }

    /// Checks that the directories of a session still lie below the roots, and that no link has replaced them.
    pub fn check_directories(&self, directories: &[PathBuf]) -> Result<(), FolderError> {
        directories.iter().try_for_each(|path| {
            if !self.has(path) {
                let folder = path.clone();
                return Err(FolderError::OutsideRoots { folder });
            }
            check_real_folder(path)
        })
    }

    /// Opens a session's directories, as returned by [`Workspaces::resolve_directory`] or
    /// [`Workspaces::create_directory`].
    pub fn open(&self, cwd: &Path, additional: &[PathBuf]) -> Result<Workspace, FileError> {
        let all = std::iter::once(cwd).chain(additional.iter().map(PathBuf::as_path));
        let opened: Result<_, _> = all.map(|path| self.open_beneath(path)).collect();
        opened.map(Workspace)
    }

    /// Walks down from a root's handle, name by name, or from `/` for a granted folder. The path was real when it was
    /// stored. Therefore a link in it was inserted later, and is not followed.
    fn open_beneath(&self, path: &Path) -> Result<Root, FileError> {
        let nearest = nearest(&self.roots, path);
        let (mut dir, rest) = match nearest {
            Some((root, rest)) => (root.dir.try_clone()?, rest),
            None if self.granted.contains(path) => {
                let rest = path.strip_prefix("/").map_err(|_| FileError::Relative)?;
                (Dir::open_ambient_dir("/", ambient_authority())?, rest)
            }
            None => return Err(FileError::OutsideRoots),
        };
        for part in rest.components() {
            let Component::Normal(name) = part else {
                return Err(FileError::Malformed);
            };
            dir = open_child(&dir, name)?;
        }
        let path = path.to_owned();
        Ok(Root { path, dir })
    }
}

/// Removes a folder with its content, if it exists.
pub(super) fn remove_folder(folder: &Path) -> io::Result<()> {
    match std::fs::remove_dir_all(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        outcome => outcome,
    }
}

/// The nearest root above a path, and the path below it.
fn nearest<'a, 'b>(roots: &'a [Root], path: &'b Path) -> Option<(&'a Root, &'b Path)> {
    let inside = roots.iter();
    let inside = inside.filter_map(|root| Some((root, path.strip_prefix(&root.path).ok()?)));
    inside.min_by_key(|(_, rest)| rest.components().count())
}

/// Opens a child directory that is not a link.
pub(super) fn open_child(dir: &Dir, name: &OsStr) -> Result<Dir, FileError> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let child = openat(dir, name, flags, Mode::empty())?;
    Ok(Dir::from_std_file(File::from(child)))
}

impl Workspace {
    pub(super) fn working_directory(&self) -> Result<Dir, FileError> {
        Ok(self.0[0].dir.try_clone()?)
    }

    /// Resolves an absolute path below the nearest of the session's directories, and a relative path below
    /// its working directory.
    pub(super) fn resolve(&self, path: &str) -> Result<ResolvedPath<'_>, FileError> {
        let path = normalize(path)?;
        let (root, mut rest) = if path.is_absolute() {
            nearest(&self.0, &path).ok_or(FileError::OutsideRoots)?
        } else {
            (&self.0[0], &*path)
        };
        if rest.as_os_str().is_empty() {
            rest = Path::new(".");
        }
        let path = rest.to_owned();
        Ok(ResolvedPath { root, path })
    }

    /// The same for an absolute path. A relative path is an error.
    pub(super) fn resolve_absolute(&self, path: &str) -> Result<ResolvedPath<'_>, FileError> {
        if path.starts_with('/') {
            self.resolve(path)
        } else {
            Err(FileError::Relative)
        }
    }

    /// Checks that another program that follows links finds an absolute path below the session's directories. The file may
    /// be missing.
    pub fn check_absolute(&self, path: &str) -> Result<(), FileError> {
        match self.resolve_absolute(path)?.real() {
            Ok(_) | Err(FileError::Missing) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// The real path of a directory below the session's directories.
    pub fn real_directory(&self, path: &str) -> Result<PathBuf, FileError> {
        let resolved = self.resolve_absolute(path)?;
        let real = resolved.real()?;
        if resolved.root.dir.metadata(&real)?.is_dir() {
            Ok(resolved.root.path.join(real))
        } else {
            Err(FileError::NotADirectory)
        }
    }

    /// Whether a root is the working directory. Paths in it are shown as relative.
    pub(super) fn is_cwd(&self, root: &Root) -> bool {
        std::ptr::eq(root, &raw const self.0[0])
    }
}

impl ResolvedPath<'_> {
    /// The path after the resolution of all links, relative to the root. The file or directory must exist.
    pub(super) fn real(&self) -> Result<PathBuf, FileError> {
        Ok(self.root.dir.canonicalize(&self.path)?)
    }
}

/// The path as plain names, without `.` and repeated slashes. `..` is an error: its meaning depends on links,
/// and no client needs it.
pub(super) fn normalize(path: &str) -> Result<PathBuf, FileError> {
    if path.is_empty() || path.contains('\0') {
        return Err(FileError::Malformed);
    }
    let parts = Path::new(path).components();
    let parts = parts.filter(|part| *part != Component::CurDir);
    let check = |part| match part {
        Component::RootDir | Component::Normal(_) => Ok(part),
        _ => Err(FileError::Malformed),
    };
    parts.map(check).collect()
}

/// The maximum number of links in a path, as for the kernel (`path_resolution(7)`).
const MAX_LINKS: usize = 40;

fn is_malformed(requested: &str) -> bool {
    let mut parts = Path::new(requested).components();
    requested.contains('\0') || parts.any(|part| part == Component::ParentDir)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn paths_that_lead_out_of_the_folders_are_rejected() {
        let folder = tempfile::tempdir().unwrap();
        let base = folder.path().canonicalize().unwrap();
        let project = base.join("project");
        let other = base.join("other");
        for path in [&project.join("sub"), &other] {
            std::fs::create_dir_all(path).unwrap();
        }
        std::fs::write(project.join("file"), "").unwrap();
        std::fs::write(other.join("secret"), "").unwrap();
        for (target, name) in [
            (&*other, "folder"),
            (&*other.join("secret"), "file-outside"),
            (&*other.join("missing"), "dangling-outside"),
            (Path::new("../other/missing"), "dangling-relative"),
            (Path::new("file"), "inside"),
            (Path::new("missing"), "dangling-inside"),
        ] {
            symlink(target, project.join(name)).unwrap();
        }
        let workspace = Workspaces::new(&base, &[])
            .unwrap()
            .open(&project, &[])
            .unwrap();
        let check = |path: &str| workspace.check_absolute(&format!("{}/{path}", project.display()));
        for path in [
            "file",
            "sub/new",
            "new/new",
            "inside",
            "dangling-inside",
            ".",
        ] {
            assert!(check(path).is_ok(), "{path}: {:?}", check(path));
        }
        for path in [
            "folder/secret",
            "folder/new",
            "file-outside",
            "dangling-outside",
            "dangling-relative",
            "../other/secret",
        ] {
            assert!(
                matches!(
                    check(path),
                    Err(FileError::OutsideRoots | FileError::Malformed)
                ),
                "{path}: {:?}",
                check(path)
            );
        }
        for path in ["/etc/passwd", other.join("secret").to_str().unwrap()] {
            assert!(
                matches!(workspace.check_absolute(path), Err(FileError::OutsideRoots)),
                "{path}"
            );
        }
        assert!(matches!(
            workspace.check_absolute("file"),
            Err(FileError::Relative)
        ));
    }

    #[test]
    fn granted_folder_is_open_only_with_its_grant_and_not_through_links() {
        let folder = tempfile::tempdir().unwrap();
        let base = folder.path().canonicalize().unwrap();
        let root = base.join("root");
        let granted = base.join("granted");
        let other = base.join("other");
        for path in [&root, &granted.join("below"), &other] {
            std::fs::create_dir_all(path).unwrap();
        }
        let plain = Workspaces::new(&root, &[]).unwrap();
        let with = plain.with_granted(GrantedFolders::default().with(granted.clone()));
        let text = |path: &Path| path.to_str().unwrap().to_owned();
        for path in [&granted, &granted.join("below")] {
            assert!(matches!(
                plain.resolve_directory(&text(path)),
                Err(FileError::OutsideRoots)
            ));
            assert!(matches!(
                plain.open(path, &[]),
                Err(FileError::OutsideRoots)
            ));
            assert!(plain.check_directories(std::slice::from_ref(path)).is_err());
            assert_eq!(with.resolve_directory(&text(path)).unwrap(), *path);
            assert!(with.open(path, std::slice::from_ref(&root)).is_ok());
            assert!(with.check_directories(std::slice::from_ref(path)).is_ok());
        }
        symlink(&other, granted.join("link")).unwrap();
        for path in [&other, &base, &granted.join("link")] {
            assert!(
                with.resolve_directory(&text(path)).is_err(),
                "{}",
                path.display()
            );
            assert!(with.open(path, &[]).is_err(), "{}", path.display());
        }
        // A link that replaces the folder later is not followed.
        std::fs::rename(&granted, base.join("moved")).unwrap();
        symlink(&other, &granted).unwrap();
        assert!(with.open(&granted, &[]).is_err());
        assert!(with.check_directories(&[granted]).is_err());
    }
}

#[cfg(test)]
mod path_tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn path_accepts_plain_names_only() {
        for (path, expected) in [
            ("a", "a"),
            ("./a//b/./c/", "a/b/c"),
            ("/", "/"),
            ("//a", "/a"),
            (".", ""),
            ("...", "..."),
            ("a..b", "a..b"),
            ("%2e%2e", "%2e%2e"),
        ] {
            assert_eq!(normalize(path).unwrap(), Path::new(expected), "{path}");
        }
        for path in ["", "..", "a/..", "/..", "a/../b", "../a", "a\0b", "\0"] {
            assert!(
                matches!(normalize(path), Err(FileError::Malformed)),
                "{path:?}"
            );
        }
    }

    proptest! {
        #[test]
        fn normalized_path_never_leads_up(path in r"[a./\\]{1,12}") {
            if let Ok(plain) = normalize(&path) {
                let normal = |part| matches!(part, Component::Normal(_) | Component::RootDir);
                prop_assert!(plain.components().all(normal));
                prop_assert_eq!(plain.is_absolute(), path.starts_with('/'));
            }
        }
    }
}
