//! Root folders as handles: the operator's, and below them a session's own.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use cap_std::ambient_authority;
use cap_std::fs::Dir;
use rustix::fs::{Mode, OFlags, openat};

use super::error::FileError;
use super::path::normalize;

/// A folder that is open, with the real path that it had when it was opened.
#[derive(Debug)]
pub(super) struct Root {
    pub(super) path: PathBuf,
    pub(super) dir: Dir,
}

/// The operator's workspace roots. The first is where sessions get folders of their own.
#[derive(Debug, Clone)]
pub struct Workspaces(Arc<[Root]>);

/// The folders of one session: its working folder first, then the additional ones. A cheap handle.
#[derive(Debug, Clone)]
pub struct Workspace(Arc<[Root]>);

/// A path as it is seen from one of a session's folders.
#[derive(Debug)]
pub(super) struct ResolvedPath<'a> {
    pub(super) root: &'a Root,
    /// Relative; `.` is the folder itself.
    pub(super) path: PathBuf,
}

impl Workspaces {
    /// Roots are canonical and open from here on: what is done to the folders above them changes nothing. Blocks, as
    /// everything here does.
    pub fn new(root: &Path, allow: &[PathBuf]) -> io::Result<Self> {
        let open = |path: &Path| {
            let path = path.canonicalize()?;
            let dir = Dir::open_ambient_dir(&path, ambient_authority())?;
            Ok(Root { path, dir })
        };
        let all = std::iter::once(root).chain(allow.iter().map(PathBuf::as_path));
        all.map(open).collect::<io::Result<_>>().map(Self)
    }

    /// Makes a folder below the first root.
    pub fn create_directory(&self, name: &str) -> io::Result<PathBuf> {
        let path = self.0[0].path.join(name);
        std::fs::create_dir(&path)?;
        Ok(path)
    }

    /// Erases a folder that [`Workspaces::create`] made, with all that is in it.
    pub fn remove_directory(&self, name: &str) -> io::Result<()> {
        match std::fs::remove_dir_all(self.0[0].path.join(name)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            outcome => outcome,
        }
    }

    /// The real path of a folder that exists and lies below a root; a relative one is taken from the first.
    pub fn resolve_directory(&self, wanted: &str) -> Result<PathBuf, FileError> {
        if wanted.contains('\0') || Path::new(wanted).components().any(|c| c == Component::ParentDir) {
            return Err(FileError::Malformed);
        }
        let path = self.0[0].path.join(wanted);
        let inside = |path: &Path| self.0.iter().any(|root| path.starts_with(&root.path));
        // What lies outside is told apart from what does not exist only below the roots: else one could look around.
        let real = match path.canonicalize() {
            Ok(real) if inside(&real) => real,
            Err(_) if inside(&path) => return Err(FileError::Missing),
            Ok(_) | Err(_) => return Err(FileError::OutsideRoots),
        };
        if real.is_dir() { Ok(real) } else { Err(FileError::NotADirectory) }
    }

    /// Opens a session's folders, which [`Workspaces::find`] or [`Workspaces::create`] gave.
    pub fn open(&self, cwd: &Path, additional: &[PathBuf]) -> Result<Workspace, FileError> {
        let all = std::iter::once(cwd).chain(additional.iter().map(PathBuf::as_path));
        all.map(|path| self.open_beneath(path)).collect::<Result<_, _>>().map(Workspace)
    }

    /// Walks down from a root's handle, name by name. The path was real when it was stored, so that a link in it now
    /// was put there since, and is not followed.
    fn open_beneath(&self, path: &Path) -> Result<Root, FileError> {
        let inside = self.0.iter().filter_map(|root| Some((root, path.strip_prefix(&root.path).ok()?)));
        let nearest = inside.min_by_key(|(_, rest)| rest.components().count());
        let (root, rest) = nearest.ok_or(FileError::OutsideRoots)?;
        let mut dir = root.dir.try_clone()?;
        for part in rest.components() {
            let Component::Normal(name) = part else { return Err(FileError::Malformed) };
            dir = open_child(&dir, name)?;
        }
        Ok(Root { path: path.to_owned(), dir })
    }
}

/// One name down, which is no link.
pub(super) fn open_child(dir: &Dir, name: &OsStr) -> Result<Dir, FileError> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(Dir::from_std_file(File::from(openat(dir, name, flags, Mode::empty())?)))
}

impl Workspace {
    /// Where a path lies: an absolute one below the nearest of the session's folders, a relative one below its working
    /// folder.
    pub(super) fn resolve(&self, path: &str) -> Result<ResolvedPath<'_>, FileError> {
        let path = normalize(path)?;
        let inside = self.0.iter().filter_map(|root| Some((root, path.strip_prefix(&root.path).ok()?)));
        let (root, rest) = if path.is_absolute() {
            inside.min_by_key(|(_, rest)| rest.components().count()).ok_or(FileError::OutsideRoots)?
        } else {
            (&self.0[0], path.as_path())
        };
        let rest = if rest.as_os_str().is_empty() { Path::new(".") } else { rest };
        Ok(ResolvedPath { root, path: rest.to_owned() })
    }

    /// The same for those who have to say it in full.
    pub(super) fn resolve_absolute(&self, path: &str) -> Result<ResolvedPath<'_>, FileError> {
        if path.starts_with('/') { self.resolve(path) } else { Err(FileError::Relative) }
    }

    /// The real path of a folder below the session's folders.
    pub fn real_directory(&self, path: &str) -> Result<PathBuf, FileError> {
        let place = self.resolve_absolute(path)?;
        let real = place.real()?;
        if place.root.dir.metadata(&real)?.is_dir() {
            Ok(place.root.path.join(real))
        } else {
            Err(FileError::NotADirectory)
        }
    }

    /// Whether a root is the working folder: what lies in it has a relative name.
    pub(super) fn is_cwd(&self, root: &Root) -> bool {
        std::ptr::eq(root, &raw const self.0[0])
    }
}

impl ResolvedPath<'_> {
    /// The path behind all links, relative to the root; the file or folder has to exist.
    pub(super) fn real(&self) -> Result<PathBuf, FileError> {
        Ok(self.root.dir.canonicalize(&self.path)?)
    }
}
