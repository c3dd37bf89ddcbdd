//! The configuration file: the one that the operator names, or the first one at its usual places.
//!
//! The file names commands that the gateway runs. The operator is responsible for a file that is named. A file at a usual
//! place must not belong to other users or be writable by them, and agents must not be able to change it.

use std::fmt::{self, Display, Formatter};
use std::fs::{self, File, Metadata};
use std::io::{ErrorKind, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rustix::process::geteuid;
use serde::Serialize;

use super::environment::Environment;
use super::error::ConfigError;

/// The configuration file of a process.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct ConfigFile {
    /// The file that was read.
    pub path: Option<PathBuf>,
    /// The places that were searched. Empty if the operator names the file.
    pub places: Vec<PathBuf>,
}

impl Display for ConfigFile {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if let Some(path) = &self.path {
            return write!(f, "{}", path.display());
        }
        let places = self.places.iter().map(|place| place.display().to_string());
        let places: Vec<_> = places.collect();
        write!(f, "none; searched {}", places.join(", "))
    }
}

impl ConfigFile {
    /// The file that the operator names, which may not exist.
    pub fn named(flag: Option<&Path>, environment: &Environment) -> Option<PathBuf> {
        let flag = flag.map(Path::to_owned);
        flag.or_else(|| environment.config_file())
    }

    /// Finds the file and reads its text.
    pub(super) fn read(
        flag: Option<&Path>,
        environment: &Environment,
    ) -> Result<(Self, Option<String>), ConfigError> {
        if let Some(path) = Self::named(flag, environment) {
            let text = fs::read_to_string(&path).map_err(|source| ConfigError::Read {
                path: path.clone(),
                source,
            })?;
            let file = Self {
                path: Some(path),
                places: Vec::new(),
            };
            return Ok((file, Some(text)));
        }
        let places = environment.config_places().to_vec();
        for place in &places {
            if let Some(text) = read_unnamed(place)? {
                let path = Some(place.clone());
                return Ok((Self { path, places }, Some(text)));
            }
        }
        Ok((Self { path: None, places }, None))
    }

    /// Fails if the file is not named and is in a folder in which agents work: an agent could then add a command for the next
    /// start, which would run without the isolation of the agent.
    pub(super) fn check_outside(&self, root: &Path) -> Result<(), ConfigError> {
        let is_named = self.places.is_empty();
        let Some(path) = self.path.as_deref() else {
            return Ok(());
        };
        let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let root_path = real(root);
        // The file can be a link, which an agent could replace.
        let folder = path.parent().unwrap_or(path);
        let is_inside = real(path).starts_with(&root_path) || real(folder).starts_with(&root_path);
        if is_inside && !is_named {
            let reason = format!(
                "sessions may work in {}, so agents can change it",
                root.display()
            );
            return Err(untrusted(path, reason));
        }
        Ok(())
    }
}

/// Reads a file at a usual place. Returns `None` if there is none, or if this process may not enter its folder, such as the home
/// of another user after `sudo -u`. A file of another user is an error.
fn read_unnamed(path: &Path) -> Result<Option<String>, ConfigError> {
    let failed = |source| ConfigError::Read {
        path: path.to_owned(),
        source,
    };
    let entry = match fs::symlink_metadata(path) {
        Ok(entry) => entry,
        Err(error)
            if matches!(
                error.kind(),
                ErrorKind::NotFound | ErrorKind::NotADirectory | ErrorKind::PermissionDenied
            ) =>
        {
            return Ok(None);
        }
        Err(error) => return Err(failed(error)),
    };
    // Before the file is opened: the entry of another user can be a FIFO or a link.
    check_owner(path, &entry)?;
    let mut file = File::open(path).map_err(failed)?;
    let found = file.metadata().map_err(failed)?;
    check_owner(path, &found)?;
    // By convention, a group with the number of its user has no other member, and the user's files are writable by it.
    let others = if found.gid() == found.uid() {
        0o002
    } else {
        0o022
    };
    if found.mode() & others != 0 {
        let reason = format!(
            "other users can write it: run `chmod go-w {}`",
            path.display()
        );
        return Err(untrusted(path, reason));
    }
    let mut text = String::new();
    file.read_to_string(&mut text).map_err(failed)?;
    Ok(Some(text))
}

fn check_owner(path: &Path, found: &Metadata) -> Result<(), ConfigError> {
    let owner = found.uid();
    if owner == 0 || owner == geteuid().as_raw() {
        return Ok(());
    }
    let reason = format!(
        "it belongs to the user with the id {owner}, and not to root or to the user of this process"
    );
    Err(untrusted(path, reason))
}

fn untrusted(path: &Path, reason: String) -> ConfigError {
    ConfigError::Untrusted {
        path: path.to_owned(),
        reason,
    }
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::{PermissionsExt as _, chown, symlink};

    use super::*;

    fn environment(places: &[PathBuf]) -> Environment {
        Environment::default().with_config_places(places.to_vec())
    }

    fn read(places: &[PathBuf]) -> Result<(ConfigFile, Option<String>), ConfigError> {
        ConfigFile::read(None, &environment(places))
    }

    #[test]
    fn first_file_that_exists_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let places = ["absent", "absent/below", "first", "second"];
        let places = places.map(|place| folder.path().join(place));
        let none = read(&places).unwrap();
        assert_eq!((none.0.path, none.1), (None, None));
        assert_eq!(none.0.places, places);
        for place in &places[2..] {
            fs::write(place, place.to_str().unwrap()).unwrap();
        }
        let (file, text) = read(&places).unwrap();
        assert_eq!(file.path.as_ref(), Some(&places[2]));
        assert_eq!(text.as_deref(), places[2].to_str());
        fs::remove_file(&places[2]).unwrap();
        assert_eq!(read(&places).unwrap().0.path.as_ref(), Some(&places[3]));
        // A link without a target is a mistake, and not an absent file.
        symlink("nowhere", &places[2]).unwrap();
        assert!(matches!(read(&places), Err(ConfigError::Read { .. })));
        // A file that is named has priority, and no place is searched.
        let named = Some(places[3].as_path());
        let (file, _) = ConfigFile::read(named, &environment(&places)).unwrap();
        assert_eq!(file.path.as_ref(), Some(&places[3]));
        assert_eq!(file.places, Vec::<PathBuf>::new());
    }

    #[test]
    fn file_that_other_users_can_write_or_own_is_not_read() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("file");
        fs::write(&place, "").unwrap();
        let is_private_group = {
            let found = fs::metadata(&place).unwrap();
            found.uid() == found.gid()
        };
        for (mode, is_read) in [
            (0o600, true),
            (0o644, true),
            (0o664, is_private_group),
            (0o646, false),
            (0o666, false),
        ] {
            fs::set_permissions(&place, Permissions::from_mode(mode)).unwrap();
            assert_eq!(
                read(std::slice::from_ref(&place)).is_ok(),
                is_read,
                "{mode:o}"
            );
        }
        fs::set_permissions(&place, Permissions::from_mode(0o644)).unwrap();
        // Only root can give a file away.
        if geteuid().is_root() {
            chown(&place, Some(65534), None).unwrap();
            let error = read(std::slice::from_ref(&place)).unwrap_err().to_string();
            assert!(error.contains("user with the id 65534"), "{error}");
            // The owner of a link and the owner of its target can differ.
            let link = folder.path().join("link");
            symlink("/etc/passwd", &link).unwrap();
            assert!(read(std::slice::from_ref(&link)).is_ok());
            std::os::unix::fs::lchown(&link, Some(65534), None).unwrap();
            assert!(read(&[link]).is_err());
        }
    }
}
