//! The steps of an installation.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::archive::{self, ArchiveError, Format};
use super::index::{Binary, Chosen, Entry, IndexError, Kind, is_id, is_version};
use super::package::{PackageError, PackageSpec, Programs};
use super::source::{Source, SourceError};
use base::shutdown::Shutdown;
use base::types::{AgentName, Ids, Timestamp};
use children::PACKAGE_FILE;
use outgoing::Client;

#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    #[error(transparent)]
    Index(#[from] IndexError),
    #[error(transparent)]
    Source(#[from] SourceError),
    #[error(transparent)]
    Archive(#[from] ArchiveError),
    #[error(transparent)]
    Package(#[from] PackageError),
    #[error(
        "version {version} of {id} is installed; `acp-gateway agent update {id}` looks for a newer one"
    )]
    Installed { id: String, version: String },
    #[error("the SHA-256 of the archive is {found}, not {wanted}; nothing was installed")]
    Checksum { found: String, wanted: String },
    #[error("{0:?} is not a SHA-256 in hexadecimal")]
    NoChecksum(String),
    #[error("the archive has no program {0:?}")]
    NoProgram(String),
    #[error("could not use the folder {}", .path.display())]
    Folder { path: PathBuf, source: io::Error },
}

impl InstallError {
    fn folder(path: &Path, source: io::Error) -> Self {
        let path = path.to_owned();
        Self::Folder { path, source }
    }
}

/// The wishes of the operator.
#[derive(Debug, Clone)]
pub struct Request {
    pub name: AgentName,
    pub kind: Option<Kind>,
    /// The hash that the archive must have, in hexadecimal.
    pub sha256: Option<String>,
    pub allow_scripts: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Installed {
    pub folder: PathBuf,
    pub command: PathBuf,
    pub args: Vec<String>,
    pub env: BTreeMap<String, String>,
    pub record: Record,
}

#[derive(Debug)]
pub struct Installer {
    pub agents: PathBuf,
    pub source: Source,
    pub client: Client,
    pub programs: Programs,
    pub ids: Ids,
    pub shutdown: Shutdown,
}

impl Installer {
    /// Installs an entry. On failure nothing remains.
    pub async fn install(
        &self,
        entry: &Entry,
        request: &Request,
    ) -> Result<Installed, InstallError> {
        let folder = self.agents.join(&entry.id).join(&entry.version);
        if Record::read(&folder).is_some() {
            return Err(InstallError::Installed {
                id: entry.id.clone(),
                version: entry.version.clone(),
            });
        }
        let used = |source| InstallError::folder(&folder, source);
        // An interrupted installation leaves its folder.
        remove(&folder).map_err(used)?;
        std::fs::create_dir_all(&folder).map_err(used)?;
        let installed = self.install_into(&folder, entry, request).await;
        if installed.is_err() {
            self.discard(&folder);
        }
        installed
    }

    /// Deletes an installation, and the folder of its id if it was the last one.
    pub fn discard(&self, folder: &Path) {
        if let Err(error) = remove(folder) {
            tracing::warn!(folder = %folder.display(), %error, "could not delete the folder of an agent");
        }
        // It fails while other versions are installed.
        let _ = folder.parent().map(std::fs::remove_dir);
    }

    async fn install_into(
        &self,
        folder: &Path,
        entry: &Entry,
        request: &Request,
    ) -> Result<Installed, InstallError> {
        let scripts = request.allow_scripts;
        let (kind, sha256, command, args, env) = match entry.choose(request.kind)? {
            Chosen::Binary(binary) => {
                let (command, hash) = self.install_binary(folder, &binary, request).await?;
                (Kind::Binary, Some(hash), command, binary.args, binary.env)
            }
            Chosen::Npx(package) => {
                let spec = PackageSpec::parse(&package.spec)?;
                let command = spec.install_npm(&self.programs, folder, scripts).await?;
                (Kind::Npx, None, command, package.args, package.env)
            }
            Chosen::Uvx(package) => {
                let spec = PackageSpec::parse(&package.spec)?;
                let command = spec.install_python(&self.programs, folder, scripts).await?;
                (Kind::Uvx, None, command, package.args, package.env)
            }
        };
        let record = Record {
            id: entry.id.clone(),
            version: entry.version.clone(),
            kind,
            sha256,
            name: request.name.clone(),
            installed_at: self.ids.now(),
        };
        let written = record.write(folder);
        written.map_err(|source| InstallError::folder(folder, source))?;
        Ok(Installed {
            folder: folder.to_owned(),
            command,
            args,
            env,
            record,
        })
    }

    /// Installs an archive or a program. Returns the program and the hash.
    async fn install_binary(
        &self,
        folder: &Path,
        binary: &Binary,
        request: &Request,
    ) -> Result<(PathBuf, String), InstallError> {
        let wanted = [request.sha256.as_ref(), binary.sha256.as_ref()];
        for wanted in wanted.iter().flatten() {
            if wanted.len() != 64 || !wanted.bytes().all(|b| b.is_ascii_hexdigit()) {
                return Err(InstallError::NoChecksum((*wanted).clone()));
            }
        }
        let no_program = || InstallError::NoProgram(binary.cmd.clone());
        let program = archive::below(folder, &binary.cmd).ok_or_else(no_program)?;
        let used = |source| InstallError::folder(folder, source);
        let format = Format::of(&binary.archive);
        let download = match format {
            Format::Raw => {
                std::fs::create_dir_all(program.parent().unwrap_or(folder)).map_err(used)?;
                program.clone()
            }
            _ => folder.join(".archive"),
        };
        let hash = self.source.fetch(&self.client, &binary.archive, &download);
        let found = hex(&hash.await?);
        for wanted in wanted.into_iter().flatten() {
            if !found.eq_ignore_ascii_case(wanted) {
                let wanted = wanted.clone();
                return Err(InstallError::Checksum { found, wanted });
            }
        }
        if format != Format::Raw {
            let archive = download.clone();
            let into = folder.to_owned();
            let unpack = move || archive::unpack(format, &archive, &into);
            let unpacked = self.shutdown.spawn_blocking(unpack).await;
            unpacked.map_err(|error| ArchiveError::Io(io::Error::other(error)))??;
            std::fs::remove_file(&download).map_err(used)?;
        }
        if !program.is_file() {
            return Err(no_program());
        }
        archive::make_executable(&program).map_err(used)?;
        Ok((program, found))
    }
}

fn remove(folder: &Path) -> io::Result<()> {
    match std::fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn hex(bytes: &[u8]) -> String {
    let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    digits
        .filter_map(|digit| char::from_digit(digit.into(), 16))
        .collect()
}

/// An installed version of an agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    pub id: String,
    pub version: String,
    pub kind: Kind,
    /// The hash of the archive in hexadecimal, for a binary.
    pub sha256: Option<String>,
    /// The entry of the configuration.
    pub name: AgentName,
    pub installed_at: Timestamp,
}

impl Record {
    pub(super) fn read(folder: &Path) -> Option<Self> {
        serde_json::from_slice(&std::fs::read(folder.join(PACKAGE_FILE)).ok()?).ok()
    }

    pub(super) fn write(&self, folder: &Path) -> io::Result<()> {
        let text = serde_json::to_vec_pretty(self).map_err(io::Error::other)?;
        std::fs::write(folder.join(PACKAGE_FILE), text)
    }
}

/// The installations below the folder of all agents, with their folders, by id and version.
pub fn installed(agents: &Path) -> io::Result<Vec<(PathBuf, Record)>> {
    let mut found = Vec::new();
    for id in names(agents, is_id)? {
        for folder in names(&id, is_version)? {
            found.extend(Record::read(&folder).map(|record| (folder, record)));
        }
    }
    Ok(found)
}

/// The folders whose names are valid, in order. Empty if the folder does not exist.
fn names(folder: &Path, is_valid: fn(&str) -> bool) -> io::Result<Vec<PathBuf>> {
    let entries = match std::fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let entries = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let mut names: Vec<_> = entries.collect();
    names.retain(|path| {
        let name = path.file_name().and_then(|name| name.to_str());
        path.is_dir() && name.is_some_and(is_valid)
    });
    names.sort();
    Ok(names)
}
