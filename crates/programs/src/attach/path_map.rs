//! The folders of an editor, and their paths at the gateway.

use std::cmp::Reverse;
use std::path::{Component, Path, PathBuf};
use std::str::FromStr;

/// One `LOCAL=REMOTE`: a folder of the editor, and its path at the gateway.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mapping {
    local: PathBuf,
    remote: PathBuf,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("expected LOCAL=REMOTE with two absolute paths")]
pub struct MappingError;

impl FromStr for Mapping {
    type Err = MappingError;

    fn from_str(text: &str) -> Result<Self, MappingError> {
        let (local, remote) = text.split_once('=').ok_or(MappingError)?;
        let local = PathBuf::from(local);
        let remote = PathBuf::from(remote);
        if local.is_absolute() && remote.is_absolute() {
            Ok(Self { local, remote })
        } else {
            Err(MappingError)
        }
    }
}

/// All mappings. Without one, paths pass unchanged.
#[derive(Debug, Clone, Default)]
pub struct PathMap(Vec<Mapping>);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the folder {0} has no path at the gateway: add --map {0}=REMOTE to the command acp-gateway attach"
)]
pub(super) struct Unmapped(String);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the path {0} has no path at the editor: use a path without .. in a folder of --map LOCAL=REMOTE, or add --map for its \
     folder to the command acp-gateway attach"
)]
pub(super) struct NotLocal(String);

impl From<Vec<Mapping>> for PathMap {
    /// The longest local path is first, because it wins.
    fn from(mut mappings: Vec<Mapping>) -> Self {
        mappings.sort_by_key(|mapping| Reverse(mapping.local.components().count()));
        Self(mappings)
    }
}

impl PathMap {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The path at the gateway. An empty path asks the gateway for a new folder and stays empty.
    pub(super) fn to_remote(&self, path: &str) -> Result<String, Unmapped> {
        if self.is_empty() || path.is_empty() {
            return Ok(path.to_owned());
        }
        let mut mappings = self.0.iter();
        let found = mappings.find_map(|Mapping { local, remote }| moved(path, local, remote));
        found.flatten().ok_or_else(|| Unmapped(path.to_owned()))
    }

    /// The path at the editor. The longest remote folder wins. A path with `..` can leave its folder, so it has none.
    pub(super) fn to_local(&self, path: &str) -> Result<String, NotLocal> {
        if self.is_empty() || path.is_empty() {
            return Ok(path.to_owned());
        }
        let mut parts = Path::new(path).components();
        let leaves = parts.any(|part| part == Component::ParentDir);
        let folders = self
            .0
            .iter()
            .filter(|mapping| Path::new(path).starts_with(&mapping.remote));
        let longest = folders.min_by_key(|mapping| Reverse(mapping.remote.components().count()));
        let found = match longest {
            Some(Mapping { local, remote }) if !leaves => moved(path, remote, local).flatten(),
            _ => None,
        };
        found.ok_or_else(|| NotLocal(path.to_owned()))
    }
}

/// The path in `to` of a path in `from`. `None` if it is elsewhere, and `Some(None)` if it is not UTF-8.
fn moved(path: &str, from: &Path, to: &Path) -> Option<Option<String>> {
    let rest = Path::new(path).strip_prefix(from).ok()?;
    // A path that is joined with an empty one would end with a slash.
    let moved = if rest.as_os_str().is_empty() {
        to.to_owned()
    } else {
        to.join(rest)
    };
    Some(moved.into_os_string().into_string().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn longest_local_folder_wins_and_other_folders_are_rejected() {
        let mappings =
            ["/home/a=/w", "/home/a/src/=/srv/src", "/=/all"].map(|text| text.parse().unwrap());
        let map = PathMap::from(mappings[..2].to_vec());
        for (local, remote) in [
            ("/home/a", Some("/w")),
            ("/home/a/", Some("/w")),
            ("/home/a/b/c", Some("/w/b/c")),
            ("/home/a/src", Some("/srv/src")),
            ("/home/a/src/lib", Some("/srv/src/lib")),
            ("/home/a/srcs", Some("/w/srcs")),
            ("", Some("")),
            ("/home/ab", None),
            ("home/a", None),
        ] {
            assert_eq!(map.to_remote(local).ok().as_deref(), remote, "{local}");
        }
        let all = PathMap::from(mappings.to_vec());
        assert_eq!(all.to_remote("/etc").unwrap(), "/all/etc");
        assert_eq!(PathMap::default().to_remote("/etc").unwrap(), "/etc");
    }

    #[test]
    fn longest_remote_folder_wins_and_other_paths_are_rejected() {
        let mappings = ["/home/a/deep/er=/w", "/home/b=/w/src/"].map(|text| text.parse().unwrap());
        let map = PathMap::from(mappings.to_vec());
        for (remote, local) in [
            ("/w", Some("/home/a/deep/er")),
            ("/w/", Some("/home/a/deep/er")),
            ("/w/x/y", Some("/home/a/deep/er/x/y")),
            ("/w/src", Some("/home/b")),
            ("/w/src/lib", Some("/home/b/lib")),
            ("/w/srcs", Some("/home/a/deep/er/srcs")),
            ("", Some("")),
            ("/w/../etc", None),
            ("/ww", None),
            ("w/x", None),
        ] {
            assert_eq!(map.to_local(remote).ok().as_deref(), local, "{remote}");
        }
        assert_eq!(
            PathMap::default().to_local("/etc/../x").unwrap(),
            "/etc/../x"
        );
    }

    #[test]
    fn mappings_have_two_absolute_paths() {
        for wrong in ["", "/a", "a=/b", "/a=b", "=/b", "/a="] {
            assert_eq!(wrong.parse::<Mapping>(), Err(MappingError), "{wrong}");
        }
    }
}
