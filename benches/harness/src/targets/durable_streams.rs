//! durable-streams, a log over HTTP, with the bridge.

use std::ffi::OsStr;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use super::{Amounts, Bridged, Places, Running, Target, absent};
use crate::server::{Server, free_port};
use crate::{Outcome, http};

#[derive(Debug)]
pub(super) struct DurableStreams(pub(super) Places);

impl DurableStreams {
    fn program(&self) -> PathBuf {
        self.0
            .peers
            .join("durable-streams/bin/durable-streams-server")
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
        let address = free_port()?;
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
        Bridged::start(&self.0, folder, (server, address), "arrays", follow)
    }
}

fn follow(address: SocketAddr, number: usize) -> Outcome<String> {
    let stream = format!("/s{number}");
    let (head, body) = http::call(
        address,
        &http::request("PUT", address, &stream, &[], Some("")),
    )?;
    if head.status / 100 != 2 {
        return Err(format!("PUT {stream}: {} {body}", head.status).into());
    }
    Ok(format!("{stream}?offset=now&live=sse"))
}
