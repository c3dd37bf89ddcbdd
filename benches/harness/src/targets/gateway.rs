//! The gateway in its default configuration: durable, with a key.
//!
//! Only the limits per client, session and hour are raised, because one client with one key simulates a thousand.

use std::ffi::OsStr;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use serde_json::{Value, json};

use super::config::{ConfigFlavor, FLAVORS};
use super::{Amounts, GATEWAY, PREVIOUS, Places, Running, STREAM, Session, Target, absent};
use crate::server::{Server, free_port};
use crate::{Outcome, http};

/// A key for these runs only. It is used only on loopback.
const KEY: &str = "bench-key-0123456789abcdef0123456789abcdef0123456789";

/// The maximum number of agent processes: enough for a hundred concurrent sessions.
const PROCESSES: usize = 256;

/// A build of the gateway.
#[derive(Debug, Clone)]
pub(crate) struct Gateway {
    name: &'static str,
    title: &'static str,
    program: PathBuf,
    agent: PathBuf,
    processes: usize,
    isolation: String,
    /// Detected before the first start.
    flavor: OnceLock<ConfigFlavor>,
}

impl Gateway {
    /// The build under test.
    pub(crate) fn current(places: &Places) -> Self {
        Self::new(GATEWAY, "acp-gateway", &places.gateway, places)
    }

    /// An earlier build, measured for comparison.
    pub(crate) fn previous(program: &Path, places: &Places) -> Self {
        Self::new(PREVIOUS, "the previous build", program, places)
    }

    fn new(name: &'static str, title: &'static str, program: &Path, places: &Places) -> Self {
        Self {
            name,
            title,
            program: program.to_owned(),
            agent: places.agent(),
            processes: PROCESSES,
            isolation: places.isolation.clone(),
            flavor: OnceLock::new(),
        }
    }

    /// A pool with so few processes that sessions must share them.
    pub(crate) fn crowded(&self) -> Self {
        Self {
            processes: 8,
            ..self.clone()
        }
    }

    fn flavor(&self, folder: &Path) -> Outcome<ConfigFlavor> {
        if let Some(flavor) = self.flavor.get() {
            return Ok(*flavor);
        }
        let flavor = ConfigFlavor::detect(&self.program, folder, FLAVORS)?;
        Ok(*self.flavor.get_or_init(|| flavor))
    }

    /// Starts the program on a folder and keeps the data of earlier starts. The program may not answer yet.
    pub(crate) fn launch(&self, folder: &Path) -> Outcome<(Server, SocketAddr)> {
        let path = |name: &str| folder.join(name);
        let (key, config, data) = (path("key"), path("gateway.toml"), path("data"));
        fs::write(&key, KEY)?;
        fs::write(
            &config,
            self.flavor(folder)?
                .render(&self.agent, self.processes, &self.isolation),
        )?;
        let address = free_port()?;
        let listen = address.to_string();
        let command: [&OsStr; 8] = [
            self.program.as_ref(),
            "serve".as_ref(),
            "--listen".as_ref(),
            listen.as_ref(),
            "--config".as_ref(),
            config.as_ref(),
            "--data".as_ref(),
            data.as_ref(),
        ];
        let environment = [
            ("HOME", folder.as_os_str()),
            ("ACP_GATEWAY_ADMIN_KEY_FILE", key.as_os_str()),
            ("RUST_LOG", "error".as_ref()),
        ];
        Ok((
            Server::start(&command, &environment, path("gateway.log"))?,
            address,
        ))
    }

    pub(crate) fn up(&self, folder: &Path) -> Outcome<Up> {
        let (mut server, address) = self.launch(folder)?;
        server.answers(address, "/readyz")?;
        Ok(Up { server, address })
    }

    pub(crate) fn program(&self) -> &Path {
        &self.program
    }

    /// The size of the program in MiB.
    pub(crate) fn size(&self) -> Outcome<f64> {
        Ok(fs::metadata(&self.program)?.len() as f64 / f64::from(1 << 20))
    }
}

impl Target for Gateway {
    fn name(&self) -> &'static str {
        self.name
    }

    fn title(&self) -> String {
        self.title.to_owned()
    }

    fn amounts(&self) -> Amounts {
        Amounts {
            single: 500_000,
            fan: Some(2000),
            sessions: Some(5000),
            idle: Some(10_000),
            replay: Some(100_000),
            stalled: Some(20_000),
        }
    }

    fn missing(&self) -> Option<String> {
        absent(&self.program)
    }

    fn start(&self, folder: &Path) -> Outcome<Box<dyn Running>> {
        Ok(Box::new(self.up(folder)?))
    }

    fn gateway(&self) -> Option<&Gateway> {
        Some(self)
    }
}

#[derive(Debug)]
pub(crate) struct Up {
    server: Server,
    address: SocketAddr,
}

impl Up {
    fn headers() -> Vec<String> {
        vec![format!("Authorization: Bearer {KEY}")]
    }

    /// Sends a request. The answer must be JSON with this status.
    pub(crate) fn ask(
        &self,
        method: &str,
        path: &str,
        body: Option<&Value>,
        status: u16,
    ) -> Outcome<Value> {
        let body = body.map(Value::to_string);
        let request = http::request(
            method,
            self.address,
            path,
            &Self::headers(),
            body.as_deref(),
        );
        let (_, answer) = http::expect(self.address, &request, status)
            .map_err(|error| format!("{method} {path}: {error} {}", self.server.last_words()))?;
        Ok(serde_json::from_str(&answer)?)
    }

    /// The session with this id, followed from the position after an event.
    pub(crate) fn followed(&self, id: &str, after: &str) -> Session {
        let address = self.address;
        let mut headers = Self::headers();
        headers.push(STREAM.to_owned());
        let events = format!("/v1/sessions/{id}/events");
        let prompts = format!("/v1/sessions/{id}/prompts");
        let get = |path: &str| http::request("GET", address, path, &headers, None);
        Session {
            address,
            follow: get(&format!("{events}?after={after}")),
            replay: Some(get(&events)),
            prompt_address: address,
            prompt: Box::new(move |text| {
                let body = json!({ "prompt": text }).to_string();
                http::request("POST", address, &prompts, &Self::headers(), Some(&body))
            }),
            turn_end: Some(b"event: prompt.completed"),
            _held: Vec::new(),
        }
    }

    /// Creates a session. Returns its id and the id of its last event.
    pub(crate) fn create(&self) -> Outcome<(String, String)> {
        let session = self.ask(
            "POST",
            "/v1/sessions",
            Some(&json!({ "agent": "synthetic" })),
            201,
        )?;
        Ok((text(&session, "sessionId")?, text(&session, "lastEventId")?))
    }
}

pub(crate) fn text(object: &Value, member: &str) -> Outcome<String> {
    Ok(object[member]
        .as_str()
        .ok_or_else(|| format!("no {member} in {object}"))?
        .to_owned())
}

impl Running for Up {
    fn session(&mut self, _: usize) -> Outcome<Session> {
        let (id, last) = self.create()?;
        Ok(self.followed(&id, &last))
    }

    /// The gateway's own process. Supervisors and agents do not belong to the cost of events.
    fn workers(&self) -> Vec<u32> {
        vec![self.server.pid()]
    }

    fn stop(self: Box<Self>) -> Outcome {
        self.server.stop()
    }
}
