//! The gateway in its default configuration: durable, with a key.
//!
//! Only the limits per client, session and hour are raised, because one client with one key simulates a thousand.

use std::ffi::OsStr;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;

use serde_json::{Value, json};

use super::{Amounts, GATEWAY, Places, Running, STREAM, Session, Target, absent};
use crate::server::{Server, free_port};
use crate::{Outcome, http};

/// A key for these runs only. It is used only on loopback.
const KEY: &str = "bench-key-0123456789abcdef0123456789abcdef0123456789";

const LIMITS: &str = "\
limits.per_key.max_streams = 100000
limits.per_key.max_live_sessions = 100000
server.max_connections = 100000
server.max_connections_per_address = 100000
limits.per_key.max_prompts_per_minute = 10000000
limits.per_key.max_requests_per_minute = 10000000
limits.per_session.max_events_per_hour = 1000000000
limits.per_session.max_bytes_per_hour = \"1TiB\"
";

/// The maximum number of agent processes: enough for a hundred concurrent sessions.
const PROCESSES: usize = 256;

#[derive(Debug)]
pub(crate) struct Gateway {
    places: Places,
    processes: usize,
}

impl Gateway {
    pub(crate) fn new(places: Places) -> Self {
        Self { places, processes: PROCESSES }
    }

    /// A pool with so few processes that sessions must share them.
    pub(crate) fn crowded(&self) -> Self {
        Self { places: self.places.clone(), processes: 8 }
    }

    /// Starts the gateway on a directory, possibly with existing data. It may not answer yet.
    pub(crate) fn launch(&self, folder: &Path) -> Outcome<(Server, SocketAddr)> {
        let path = |name: &str| folder.join(name);
        fs::write(path("key"), KEY)?;
        let agent = json!(self.places.agent());
        let agent = format!(
            "[agents.synthetic]\ncommand = {agent}\npool = {{ max_size = {}, min_idle = 1 }}\n",
            self.processes
        );
        fs::write(path("gateway.toml"), format!("{LIMITS}\n{agent}"))?;
        let address = free_port()?;
        let listen = address.to_string();
        let config = path("gateway.toml");
        let data = path("data");
        let command: [&OsStr; 8] = [
            self.places.gateway.as_ref(),
            "serve".as_ref(),
            "--listen".as_ref(),
            listen.as_ref(),
            "--config".as_ref(),
            config.as_ref(),
            "--data".as_ref(),
            data.as_ref(),
        ];
        let key = path("key");
        let environment = [
            ("HOME", folder.as_os_str()),
            ("ACP_GATEWAY_ADMIN_KEY_FILE", key.as_os_str()),
            ("RUST_LOG", "error".as_ref()),
        ];
        Ok((Server::start(&command, &environment, path("gateway.log"))?, address))
    }

    pub(crate) fn up(&self, folder: &Path) -> Outcome<Up> {
        let (mut server, address) = self.launch(folder)?;
        server.answers(address, "/readyz")?;
        Ok(Up { server, address })
    }

    /// The size of the program in MiB.
    pub(crate) fn size(&self) -> Outcome<f64> {
        Ok(fs::metadata(&self.places.gateway)?.len() as f64 / f64::from(1 << 20))
    }
}

impl Target for Gateway {
    fn name(&self) -> &'static str {
        GATEWAY
    }

    fn title(&self) -> String {
        "acp-gateway".to_owned()
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
        absent(&self.places.gateway)
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
    pub(crate) fn ask(&self, method: &str, path: &str, body: Option<&Value>, status: u16) -> Outcome<Value> {
        let body = body.map(Value::to_string);
        let request = http::request(method, self.address, path, &Self::headers(), body.as_deref());
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
        let session = self.ask("POST", "/v1/sessions", Some(&json!({ "agent": "synthetic" })), 201)?;
        Ok((text(&session, "sessionId")?, text(&session, "lastEventId")?))
    }
}

pub(crate) fn text(object: &Value, member: &str) -> Outcome<String> {
    Ok(object[member].as_str().ok_or_else(|| format!("no {member} in {object}"))?.to_owned())
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
