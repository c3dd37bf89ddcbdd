//! The steps of an installation, and the first start of the agent, which must answer `initialize`.

use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tokio::io::{AsyncBufRead, AsyncBufReadExt as _, AsyncReadExt as _, BufReader};
use tokio::time::timeout;

use super::archive::{self, ArchiveError, Format};
use super::index::{Binary, Chosen, Entry, IndexError, Kind, is_id, is_version};
use super::package::{PackageError, PackageSpec, Programs};
use super::source::{Source, SourceError};
use base::shutdown::Shutdown;
use base::types::text::one_line;
use base::types::{AgentName, Ids, Timestamp};
use children::{ChildSpec, PACKAGE_FILE, SpawnError, Spawner};
use outgoing::Client;
use wire::acp::{
    AcpVersion, ClientCapabilities, InitializeError, InitializeResult, initialize, method,
};
use wire::jsonrpc;

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
        "version {1} of {0} is installed; `acp-gateway agent update {0}` looks for a newer one"
    )]
    Installed(String, String),
    #[error("the SHA-256 of the archive is {0}, not {1}; nothing was installed")]
    Checksum(String, String),
    #[error("{0:?} is not a SHA-256 in hexadecimal")]
    NoChecksum(String),
    #[error("the archive has no program {0:?}")]
    NoProgram(String),
    #[error("could not use the folder {}", .0.display())]
    Folder(PathBuf, #[source] io::Error),
}

/// The wishes of the operator.
#[derive(Debug, Clone)]
pub struct Request {
    pub name: AgentName,
    pub kind: Option<Kind>,
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

/// A step that can take long. A download reports its progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step<'a> {
    Registry,
    Download {
        archive: &'a str,
        bytes: u64,
        total: Option<u64>,
    },
    Unpack,
    Package {
        spec: &'a str,
    },
    Start,
}

const MAX_NAME_CHARS: usize = 40;

impl Step<'_> {
    /// The bytes of a download so far, and in total.
    pub fn amount(&self) -> Option<(u64, Option<u64>)> {
        match *self {
            Self::Download { bytes, total, .. } => Some((bytes, total)),
            _ => None,
        }
    }
}

impl Display for Step<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Registry => f.write_str("reading the registry"),
            Self::Download { archive, .. } => write!(f, "downloading {}", file_name(archive)),
            Self::Unpack => f.write_str("unpacking"),
            Self::Package { spec } => write!(f, "installing {}", one_line(spec)),
            Self::Start => f.write_str("starting the agent"),
        }
    }
}

/// The name of an archive, from its URL or path.
fn file_name(archive: &str) -> String {
    let path = archive.split(['?', '#']).next().unwrap_or_default();
    let name = path.rsplit('/').next().unwrap_or_default();
    one_line(name).chars().take(MAX_NAME_CHARS).collect()
}

#[derive(derive_more::Debug)]
pub struct Installer {
    pub agents: PathBuf,
    pub source: Source,
    pub client: Client,
    pub programs: Programs,
    pub ids: Ids,
    pub shutdown: Shutdown,
    #[debug(skip)]
    pub progress: Box<dyn Fn(Step<'_>)>,
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
            let version = entry.version.clone();
            return Err(InstallError::Installed(entry.id.clone(), version));
        }
        let used = |error| InstallError::Folder(folder.clone(), error);
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
                let step = Step::Package {
                    spec: &package.spec,
                };
                (self.progress)(step);
                let command = spec.install_npm(&self.programs, folder, scripts).await?;
                (Kind::Npx, None, command, package.args, package.env)
            }
            Chosen::Uvx(package) => {
                let spec = PackageSpec::parse(&package.spec)?;
                let step = Step::Package {
                    spec: &package.spec,
                };
                (self.progress)(step);
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
        written.map_err(|error| InstallError::Folder(folder.to_owned(), error))?;
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
        let used = |error| InstallError::Folder(folder.to_owned(), error);
        let format = Format::of(&binary.archive);
        let download = match format {
            Format::Raw => {
                std::fs::create_dir_all(program.parent().unwrap_or(folder)).map_err(used)?;
                program.clone()
            }
            _ => folder.join(".archive"),
        };
        let archive = &*binary.archive;
        let progress = |bytes, total| {
            (self.progress)(Step::Download {
                archive,
                bytes,
                total,
            });
        };
        let fetched = self
            .source
            .fetch(&self.client, archive, &download, &progress);
        let found = fetched.await?;
        for wanted in wanted.into_iter().flatten() {
            if !found.eq_ignore_ascii_case(wanted) {
                return Err(InstallError::Checksum(found, wanted.clone()));
            }
        }
        if format != Format::Raw {
            (self.progress)(Step::Unpack);
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

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    pub id: String,
    pub version: String,
    pub kind: Kind,
    /// The hash of the archive in hexadecimal, for a binary.
    pub sha256: Option<String>,
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

/// The time from the start to the answer.
const TIMEOUT: Duration = Duration::from_mins(1);
const MAX_OUTPUT_BYTES: u64 = 1 << 20;

#[derive(Debug, thiserror::Error)]
pub enum VerifyError {
    #[error("could not start the agent")]
    Spawn(#[from] SpawnError),
    #[error("the agent did not answer `initialize` within {} seconds{}", TIMEOUT.as_secs(), with_stderr(.stderr))]
    Timeout { stderr: String },
    #[error("the agent ended before it answered `initialize`{}", with_stderr(.stderr))]
    Ended { stderr: String },
    #[error("the agent answered `initialize` with an error: {0}")]
    Rpc(String),
    #[error(transparent)]
    Initialize(#[from] InitializeError),
}

fn with_stderr(stderr: &str) -> String {
    match stderr.trim() {
        "" => String::new(),
        text => format!("; the end of its stderr:\n{text}"),
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Answer {
    /// The name and the version of the agent, as it reports them.
    pub agent: Option<String>,
    pub sign_in: Vec<String>,
}

pub async fn verify(
    spawner: &Spawner,
    spec: ChildSpec,
    offer: ClientCapabilities,
) -> Result<Answer, VerifyError> {
    let mut child = spawner.spawn(spec).await?;
    let version = env!("CARGO_PKG_VERSION");
    let params = initialize(AcpVersion::V1, version, offer);
    let line = jsonrpc::request(0, method::INITIALIZE, &params);
    let stdout = child.take_stdout().expect("a new child has its stdout");
    // An agent that has ended does not read, and its stdout ends.
    if child.stdin.send(line).is_err() {
        tracing::debug!("the agent does not read");
    }
    let output = BufReader::new(stdout.take(MAX_OUTPUT_BYTES));
    let answered = timeout(TIMEOUT, answer(output)).await;
    child.stop().await;
    let stderr = child.stderr.tail();
    let line = match answered {
        Err(_) => return Err(VerifyError::Timeout { stderr }),
        Ok(None) => return Err(VerifyError::Ended { stderr }),
        Ok(Some(line)) => line,
    };
    if let Some(error) = line.error {
        return Err(VerifyError::Rpc(error.get().to_owned()));
    }
    let result = InitializeResult::parse(&line.result.unwrap_or_default(), AcpVersion::V1)?;
    let info = result.agent_info;
    let info = info.and_then(|info| serde_json::from_str::<Info>(info.get()).ok());
    let agent = info.map(|info| format!("{} {}", info.title.unwrap_or(info.name), info.version));
    let methods = result.auth_methods;
    let methods = methods.and_then(|raw| serde_json::from_str::<Vec<Method>>(raw.get()).ok());
    let methods = methods.unwrap_or_default().into_iter();
    Ok(Answer {
        agent: agent.map(|agent| agent.trim().to_owned()),
        sign_in: methods.map(|method| method.name).collect(),
    })
}

/// The response to the request. Other lines are skipped.
async fn answer(mut lines: impl AsyncBufRead + Unpin) -> Option<Line> {
    let mut text = String::new();
    while let Ok(1..) = lines.read_line(&mut text).await {
        if let Ok(line) = serde_json::from_str::<Line>(&text)
            && line.id == Some(0)
        {
            return Some(line);
        }
        text.clear();
    }
    None
}

#[derive(Debug, Deserialize)]
struct Line {
    id: Option<i64>,
    result: Option<Box<RawValue>>,
    error: Option<Box<RawValue>>,
}

#[derive(Debug, Deserialize)]
struct Info {
    name: String,
    title: Option<String>,
    #[serde(default)]
    version: String,
}

#[derive(Debug, Deserialize)]
struct Method {
    name: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_archives_are_short() {
        assert_eq!(
            file_name("https://x.example/a/b.tar.gz?token=1#x"),
            "b.tar.gz"
        );
        assert_eq!(file_name("../b\u{1b}[2J.zip"), "b.zip");
        assert_eq!(file_name(&"a".repeat(99)).len(), MAX_NAME_CHARS);
    }
}
