//! The folders of this machine in which sessions may work, and the check of the messages of the gateway before the agent
//! receives them.
//!
//! The gateway decides about the folders of a session by name. This side enforces its roots again, so that the gateway
//! cannot open a session elsewhere.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use serde_json::Value;
use serde_json::value::RawValue;

use super::OfferedTools;
use base::shutdown::Shutdown;
use wire::acp::{self, RawObject, error_code, method};
use wire::jsonrpc::{self, MAX_DEPTH, Message};
use workspace::{FileError, Workspace, Workspaces};

const CHECK_TIMEOUT: Duration = Duration::from_secs(10);
/// The number of sessions, and of open requests for one, whose folders are remembered. Beyond it, the oldest one is
/// forgotten, and its commands run in the first root.
const MAX_SESSIONS: usize = 1024;

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Checked {
    /// The line for the agent.
    Pass(Bytes),
    /// The line for the gateway, which the agent does not receive.
    Answer(Bytes),
    Discard,
}

#[derive(Debug)]
pub(super) struct Gate {
    roots: Roots,
    serves: OfferedTools,
    shutdown: Shutdown,
    /// The folders of requests that create sessions, by request id.
    creating: Folders,
    /// The folders of sessions, by session id.
    sessions: Folders,
}

/// Folders by name, of which the oldest one is forgotten.
#[derive(Debug, Default)]
struct Folders {
    by_name: BTreeMap<String, PathBuf>,
    order: VecDeque<String>,
}

impl Folders {
    fn insert(&mut self, name: String, folder: PathBuf) {
        if self.by_name.insert(name.clone(), folder).is_none() {
            self.order.push_back(name);
        }
        if self.order.len() > MAX_SESSIONS
            && let Some(oldest) = self.order.pop_front()
        {
            self.by_name.remove(&oldest);
        }
    }

    fn remove(&mut self, name: &str) -> Option<PathBuf> {
        let folder = self.by_name.remove(name)?;
        self.order.retain(|known| known != name);
        Some(folder)
    }
}

impl Gate {
    pub(super) fn new(roots: Roots, serves: OfferedTools, shutdown: Shutdown) -> Self {
        Self {
            roots,
            serves,
            shutdown,
            creating: Folders::default(),
            sessions: Folders::default(),
        }
    }

    pub(super) async fn check(&mut self, line: Bytes) -> Checked {
        // A second line would not be checked.
        let text = line.strip_suffix(b"\n").unwrap_or(&line);
        let message = match memchr::memchr2(b'\n', b'\r', text) {
            Some(_) => None,
            None => jsonrpc::parse(text, MAX_DEPTH).ok(),
        };
        let (id, method, params) = match message {
            Some(Message::Request { id, method, params }) => (Some(id), method, params),
            Some(Message::Notification { method, params }) => (None, method, params),
            Some(Message::Response { .. }) => return Checked::Pass(line),
            None => {
                tracing::warn!("discarded a line of the gateway that is not one message");
                return Checked::Discard;
            }
        };
        match (self.folder_of(&params).await, id) {
            (Ok(folder), id) => {
                if let Some(folder) = folder {
                    self.note(&method, id.as_deref(), &params, folder);
                }
                let offers = &*method == method::INITIALIZE && self.serves.any();
                Checked::Pass(if offers { self.offer(line) } else { line })
            }
            (Err(detail), Some(id)) => {
                tracing::warn!(%method, detail, "rejected a request of the gateway");
                let error = acp::error(error_code::INVALID_PARAMS, &detail);
                Checked::Answer(jsonrpc::error(&id, &error))
            }
            (Err(detail), None) => {
                tracing::warn!(%method, detail, "discarded a notification of the gateway");
                Checked::Discard
            }
        }
    }

    /// The real `cwd` of a message, if it has one. Fails if a folder of the message is outside of the roots.
    async fn folder_of(&self, params: &RawValue) -> Result<Option<PathBuf>, String> {
        let named = NamedFolders::of(params)?;
        if named.is_empty() {
            return Ok(None);
        }
        let roots = self.roots.clone();
        let checked = self.shutdown.spawn_blocking(move || roots.check(&named));
        match tokio::time::timeout(CHECK_TIMEOUT, checked).await {
            Ok(Ok(checked)) => checked,
            Ok(Err(_)) | Err(_) => Err("the member could not check the folders in time".to_owned()),
        }
    }

    fn note(&mut self, method: &str, id: Option<&RawValue>, params: &RawValue, folder: PathBuf) {
        match (method, id) {
            (method::SESSION_NEW | method::SESSION_FORK, Some(id)) => {
                self.creating.insert(id.get().to_owned(), folder);
            }
            (method::SESSION_LOAD | method::SESSION_RESUME, _) => {
                if let Ok(Some(session)) = acp::session_id_of(params) {
                    self.sessions.insert(session.into_owned(), folder);
                }
            }
            _ => {}
        }
    }

    /// Whether a response of the agent can create a session.
    pub(super) fn awaits_session(&self) -> bool {
        !self.creating.by_name.is_empty()
    }

    pub(super) fn answered(&mut self, id: &RawValue, result: Option<&RawValue>) {
        let Some(folder) = self.creating.remove(id.get()) else {
            return;
        };
        if let Some(Ok(Some(session))) = result.map(acp::session_id_of) {
            self.sessions.insert(session.into_owned(), folder);
        }
    }

    pub(super) fn session_folder(&self, params: &RawValue) -> &Path {
        let session = acp::session_id_of(params).ok().flatten();
        let folder = session.and_then(|session| self.sessions.by_name.get(&*session));
        folder.map_or(self.roots.first(), |folder| folder)
    }

    fn offer(&self, line: Bytes) -> Bytes {
        let Ok(mut message) = serde_json::from_slice::<Value>(&line) else {
            return line;
        };
        let capabilities = &mut message["params"]["clientCapabilities"];
        if !capabilities.is_object() {
            *capabilities = Value::Object(serde_json::Map::new());
        }
        if self.serves.files {
            capabilities["fs"] = serde_json::json!({ "readTextFile": true, "writeTextFile": true });
        }
        if self.serves.terminals {
            capabilities["terminal"] = Value::Bool(true);
        }
        format!("{message}\n").into()
    }
}

/// The roots of a member, opened at its start. The first one is the default folder of sessions.
#[derive(Debug, Clone)]
pub struct Roots {
    workspaces: Workspaces,
    paths: Vec<PathBuf>,
}

#[derive(Debug, thiserror::Error)]
pub enum RootError {
    #[error("could not open the root {}", .0.display())]
    Open(PathBuf, #[source] io::Error),
    #[error("the root {} is not UTF-8, which the gateway requires", .0.display())]
    NotUtf8(PathBuf),
    #[error("at least one root is required")]
    Missing,
}

impl Roots {
    pub fn open(requested: &[PathBuf]) -> Result<Self, RootError> {
        let real = |path: &PathBuf| {
            let real = path.canonicalize();
            let real = real.map_err(|error| RootError::Open(path.clone(), error))?;
            match real.to_str() {
                Some(_) => Ok(real),
                None => Err(RootError::NotUtf8(real)),
            }
        };
        let paths = requested.iter().map(real).collect::<Result<Vec<_>, _>>()?;
        let (first, others) = paths.split_first().ok_or(RootError::Missing)?;
        let workspaces = Workspaces::new(first, others);
        let workspaces = workspaces.map_err(|error| RootError::Open(first.clone(), error))?;
        Ok(Self { workspaces, paths })
    }

    pub fn names(&self) -> Vec<String> {
        let names = self.paths.iter().map(|path| path.to_string_lossy());
        names.map(Into::into).collect()
    }

    pub(super) fn first(&self) -> &Path {
        &self.paths[0]
    }

    /// The roots for requests of the agent. Blocks on the file system.
    pub(super) fn workspace(&self) -> Result<Workspace, FileError> {
        self.workspaces.open(&self.paths[0], &self.paths[1..])
    }

    /// Checks that these folders exist below the roots after the resolution of all links. Returns the real path of `cwd`.
    /// Blocks on the file system. `Err`: a text for the gateway.
    pub(super) fn check(&self, named: &NamedFolders) -> Result<Option<PathBuf>, String> {
        for directory in &named.additional {
            self.folder("additionalDirectories", directory)?;
        }
        let cwd = named.cwd.as_ref();
        cwd.map(|cwd| self.folder("cwd", cwd)).transpose()
    }

    fn folder(&self, member: &str, requested: &str) -> Result<PathBuf, String> {
        let is_absolute = requested.starts_with('/');
        let resolved = is_absolute.then(|| self.workspaces.resolve_directory(requested));
        let resolved = resolved.unwrap_or(Err(FileError::Relative));
        resolved.map_err(|error| match error {
            FileError::OutsideRoots => {
                format!("{member}: the folder is outside of the roots of the member")
            }
            FileError::Missing => format!("{member}: there is no such folder at the member"),
            other => format!("{member}: {other}"),
        })
    }
}

#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct NamedFolders {
    cwd: Option<String>,
    additional: Vec<String>,
}

impl NamedFolders {
    /// The folders in the params of any method. Fails if two readers could find different ones.
    pub(super) fn of(params: &RawValue) -> Result<Self, String> {
        let Some(object) = RawObject::parse(params) else {
            if params.get().starts_with('{') {
                return Err("the params are not an object with distinct members".to_owned());
            }
            return Ok(Self::default());
        };
        let member = |name: &str| object.get(name).map_or("null", RawValue::get);
        let cwd = serde_json::from_str(member("cwd"));
        let additional = serde_json::from_str::<Option<_>>(member("additionalDirectories"));
        let expected = "additionalDirectories: expected an array of paths";
        let additional = additional.map_err(|_| expected.to_owned())?;
        Ok(Self {
            cwd: cwd.map_err(|_| "cwd: expected a path".to_owned())?,
            additional: additional.unwrap_or_default(),
        })
    }

    pub(super) fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

#[cfg(test)]
mod gate_tests {
    use super::*;

    fn gate(folder: &Path, serves: OfferedTools) -> Gate {
        Gate::new(
            Roots::open(&[folder.to_owned()]).unwrap(),
            serves,
            Shutdown::new(),
        )
    }

    #[tokio::test]
    async fn only_messages_with_folders_below_the_roots_pass() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        std::fs::create_dir(root.join("sub")).unwrap();
        let mut gate = gate(&root, OfferedTools::default());
        let line = |method: &str, params: &str| {
            Bytes::from(format!(
                "{{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"{method}\",\"params\":{params}}}\n"
            ))
        };
        let inside = format!(
            "{{\"cwd\":\"{}\",\"mcpServers\":[]}}",
            root.join("sub").display()
        );
        let new = line("session/new", &inside);
        assert_eq!(
            gate.check(new.clone()).await,
            Checked::Pass(new),
            "bytes stay unchanged"
        );
        assert!(gate.awaits_session());
        let result: &RawValue = serde_json::from_str(r#"{"sessionId":"s1"}"#).unwrap();
        gate.answered(serde_json::from_str("7").unwrap(), Some(result));
        assert_eq!(gate.session_folder(result), root.join("sub"));
        let unknown: &RawValue = serde_json::from_str(r#"{"sessionId":"s2"}"#).unwrap();
        assert_eq!(gate.session_folder(unknown), root);

        for method in ["session/new", "session/load", "_vendor/anything"] {
            let Checked::Answer(answer) = gate.check(line(method, r#"{"cwd":"/"}"#)).await else {
                panic!("{method} was not rejected")
            };
            let text = std::str::from_utf8(&answer).unwrap();
            assert!(
                text.contains("outside of the roots") && text.contains("\"id\":7"),
                "{text}"
            );
        }
        let notification = Bytes::from_static(b"{\"method\":\"x\",\"params\":{\"cwd\":\"/\"}}\n");
        assert_eq!(gate.check(notification).await, Checked::Discard);
        let two = [&line("a", "{}")[..], &line("session/new", r#"{"cwd":"/"}"#)].concat();
        assert_eq!(gate.check(two.into()).await, Checked::Discard);
    }

    #[tokio::test]
    async fn initialize_offers_the_served_methods() {
        let dir = tempfile::tempdir().unwrap();
        let initialize = Bytes::from_static(
            b"{\"id\":1,\"method\":\"initialize\",\"params\":{\"clientCapabilities\":{\"fs\":{\"readTextFile\":false},\"a\":1}}}\n",
        );
        let off = gate(dir.path(), OfferedTools::default())
            .check(initialize.clone())
            .await;
        assert_eq!(off, Checked::Pass(initialize.clone()));
        let serves = OfferedTools {
            files: true,
            terminals: true,
        };
        let Checked::Pass(offered) = gate(dir.path(), serves).check(initialize).await else {
            panic!()
        };
        let offered: Value = serde_json::from_slice(&offered).unwrap();
        assert_eq!(
            offered["params"]["clientCapabilities"],
            serde_json::json!({ "fs": { "readTextFile": true, "writeTextFile": true }, "terminal": true, "a": 1 })
        );
    }
}

#[cfg(test)]
mod roots_tests {
    use super::*;

    fn raw(value: &serde_json::Value) -> Box<RawValue> {
        serde_json::value::to_raw_value(value).unwrap()
    }

    #[test]
    fn folders_of_a_message_are_below_the_roots_after_all_links() {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path().canonicalize().unwrap();
        let first = base.join("first");
        let second = base.join("second");
        let other = base.join("other");
        for folder in [&first.join("sub"), &second, &other] {
            std::fs::create_dir_all(folder).unwrap();
        }
        std::os::unix::fs::symlink(&other, first.join("out")).unwrap();
        std::os::unix::fs::symlink(&second, first.join("across")).unwrap();
        let roots = Roots::open(&[first.clone(), second.clone()]).unwrap();
        assert_eq!(
            roots.names(),
            [first.to_str().unwrap(), second.to_str().unwrap()]
        );
        let check = |params: serde_json::Value| roots.check(&NamedFolders::of(&raw(&params))?);
        let path = |path: &Path| path.to_str().unwrap().to_owned();
        for (cwd, real) in [
            (first.clone(), &first),
            (first.join("sub"), &first.join("sub")),
            (first.join("across"), &second),
        ] {
            assert_eq!(
                check(serde_json::json!({ "cwd": cwd })).unwrap().as_ref(),
                Some(real)
            );
        }
        for outside in [
            path(&other),
            path(&first.join("out")),
            format!("{}/../other", path(&first)),
            path(&first.join("missing")),
            "/".to_owned(),
            "sub".to_owned(),
        ] {
            assert!(
                check(serde_json::json!({ "cwd": outside })).is_err(),
                "{outside}"
            );
            let directories =
                serde_json::json!({ "cwd": first, "additionalDirectories": [second, outside] });
            assert!(check(directories).is_err(), "{outside}");
        }
        assert_eq!(
            check(serde_json::json!({ "sessionId": "s", "cwd": null })),
            Ok(None)
        );
        assert_eq!(check(serde_json::json!(null)), Ok(None));
        for wrong in [
            r#"{"cwd":1}"#,
            r#"{"additionalDirectories":"/"}"#,
            r#"{"cwd":null,"cwd":"/"}"#,
        ] {
            assert!(
                NamedFolders::of(serde_json::from_str(wrong).unwrap()).is_err(),
                "{wrong}"
            );
        }
        assert!(Roots::open(&[base.join("missing")]).is_err() && Roots::open(&[]).is_err());
    }
}
