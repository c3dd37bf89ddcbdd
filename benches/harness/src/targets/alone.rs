//! A server with one process that starts its agents itself.

use std::ffi::{OsStr, OsString};
use std::net::SocketAddr;
use std::path::PathBuf;

use super::{Running, Session};
use crate::Outcome;
use crate::server::{Server, free_port};

/// Creates the session with this number at an address.
type MakeSession = fn(SocketAddr, usize) -> Outcome<Session>;

pub(super) struct Alone {
    server: Server,
    address: SocketAddr,
    session: MakeSession,
}

impl Alone {
    /// Runs the command for a port, and waits until it listens.
    pub(super) fn start(
        log: PathBuf,
        environment: &[(&str, &OsStr)],
        session: MakeSession,
        command: impl FnOnce(&str) -> Vec<OsString>,
    ) -> Outcome<Box<dyn Running>> {
        let address = free_port()?;
        let mut server = Server::start(&command(&address.port().to_string()), environment, log)?;
        server.listens(address)?;
        Ok(Box::new(Self {
            server,
            address,
            session,
        }))
    }
}

impl Running for Alone {
    fn session(&mut self, number: usize) -> Outcome<Session> {
        (self.session)(self.address, number)
    }

    fn workers(&self) -> Vec<u32> {
        vec![self.server.pid()]
    }

    fn stop(self: Box<Self>) -> Outcome {
        self.server.stop()
    }
}
