//! durable-streams, a log over HTTP, which the bridge feeds.

use std::ffi::OsStr;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use super::{Amounts, Places, Running, STREAM, Session, Target, absent, stop_all};
use crate::server::{Server, free_port};
use crate::{Outcome, http};

#[derive(Debug)]
pub(super) struct DurableStreams(pub(super) Places);

impl DurableStreams {
    fn program(&self) -> PathBuf {
        self.0.peers.join("durable-streams/bin/durable-streams-server")
    }
}

impl Target for DurableStreams {
    fn name(&self) -> &'static str {
        "durable-streams"
    }

    fn title(&self) -> String {
        "durable-streams 0.1.5 behind a bridge".to_owned()
    }

    fn amounts(&self) -> Amounts {
        Amounts {
            single: 200_000,
            fan: Some(1000),
            sessions: Some(2000),
            idle: Some(1000),
            replay: None,
            stalled: Some(5000),
        }
    }

    fn missing(&self) -> Option<String> {
        absent(&self.program())
    }

    fn start(&self, folder: &Path) -> Outcome<Box<dyn Running>> {
        let (address, prompts) = (free_port()?, free_port()?);
        let port = address.port().to_string();
        let data = folder.join("durable-streams");
        let program = self.program();
        let command: [&OsStr; 7] = [
            program.as_ref(),
            "--host".as_ref(),
            "127.0.0.1".as_ref(),
            "--port".as_ref(),
            port.as_ref(),
            "--data-dir".as_ref(),
            data.as_ref(),
        ];
        let mut server = Server::start(&command, &[], folder.join("durable-streams.log"))?;
        server.listens(address)?;
        let bridge = bridge(&self.0, folder, prompts, address, "arrays")?;
        Ok(Box::new(Up { server, bridge, address, prompts }))
    }
}

/// The bridge that publishes to a server, as single lines or as arrays of them.
pub(super) fn bridge(
    places: &Places,
    folder: &Path,
    prompts: SocketAddr,
    server: SocketAddr,
    form: &str,
) -> Outcome<Server> {
    let port = prompts.port().to_string();
    let command = [
        places.programs.join("publish-bridge"),
        port.into(),
        places.agent(),
        server.to_string().into(),
        form.into(),
    ];
    let mut bridge = Server::start(&command, &[], folder.join("bridge.log"))?;
    bridge.listens(prompts)?;
    Ok(bridge)
}

struct Up {
    server: Server,
    bridge: Server,
    address: SocketAddr,
    prompts: SocketAddr,
}

impl Running for Up {
    fn session(&mut self, number: usize) -> Outcome<Session> {
        let (address, prompts) = (self.address, self.prompts);
        let stream = format!("/s{number}");
        let (head, body) = http::call(address, &http::request("PUT", address, &stream, &[], Some("")))?;
        if head.status / 100 != 2 {
            return Err(format!("PUT {stream}: {} {body}", head.status).into());
        }
        let path = format!("{stream}?offset=now&live=sse");
        Ok(Session {
            address,
            follow: http::request("GET", address, &path, &[STREAM.to_owned()], None),
            replay: None,
            prompt_address: prompts,
            prompt: Box::new(move |text| {
                http::request("POST", prompts, &format!("/s/{number}/prompt"), &[], Some(text))
            }),
            turn_end: None,
            _held: Vec::new(),
        })
    }

    fn workers(&self) -> Vec<u32> {
        vec![self.server.pid(), self.bridge.pid()]
    }

    fn holders(&self) -> Vec<u32> {
        vec![self.server.pid()]
    }

    fn stop(self: Box<Self>) -> Outcome {
        stop_all([self.bridge, self.server])
    }
}
