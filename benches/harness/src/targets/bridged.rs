//! A server that starts no agents. The bridge starts them and publishes their output.

use std::net::SocketAddr;
use std::path::Path;

use super::{Places, Running, STREAM, Session};
use crate::server::{Server, free_port};
use crate::{Outcome, http, proc};

/// The path for following the session with this number. Creates the session if necessary.
type Follow = fn(SocketAddr, usize) -> Outcome<String>;

pub(super) struct Bridged {
    server: Server,
    bridge: Server,
    address: SocketAddr,
    prompts: SocketAddr,
    follow: Follow,
}

impl Bridged {
    /// Starts the bridge for a listening server. The bridge publishes single lines or arrays of lines.
    pub(super) fn start(
        places: &Places,
        folder: &Path,
        (server, address): (Server, SocketAddr),
        form: &str,
        follow: Follow,
    ) -> Outcome<Box<dyn Running>> {
        let prompts = free_port()?;
        let command = [
            places.programs.join("publish-bridge"),
            prompts.port().to_string().into(),
            places.agent(),
            address.to_string().into(),
            form.into(),
        ];
        let mut bridge = Server::start(&command, &[], folder.join("bridge.log"))?;
        bridge.listens(prompts)?;
        Ok(Box::new(Self {
            server,
            bridge,
            address,
            prompts,
            follow,
        }))
    }
}

impl Running for Bridged {
    fn session(&mut self, number: usize) -> Outcome<Session> {
        let (address, prompts) = (self.address, self.prompts);
        let path = (self.follow)(address, number)?;
        Ok(Session {
            address,
            follow: http::request("GET", address, &path, &[STREAM.to_owned()], None),
            replay: None,
            prompt_address: prompts,
            prompt: Box::new(move |text| {
                http::request(
                    "POST",
                    prompts,
                    &format!("/s/{number}/prompt"),
                    &[],
                    Some(text),
                )
            }),
            turn_end: None,
            _held: Vec::new(),
        })
    }

    fn workers(&self) -> Vec<u32> {
        [self.holders(), vec![self.bridge.pid()]].concat()
    }

    /// The server, and its worker if it has one.
    fn holders(&self) -> Vec<u32> {
        let server = self.server.pid();
        [vec![server], proc::children(server)].concat()
    }

    fn stop(self: Box<Self>) -> Outcome {
        // Both are stopped in any case. The error of the first one is returned.
        let ended = self.bridge.stop();
        ended.and(self.server.stop())
    }
}
