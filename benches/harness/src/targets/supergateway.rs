//! supergateway: one agent whose messages go to every client.

use std::ffi::OsStr;
use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};

use super::{Alone, Amounts, Places, Running, STREAM, Session, Target, absent};
use crate::{Outcome, http, rpc};

#[derive(Debug)]
pub(super) struct Supergateway(pub(super) Places);

impl Supergateway {
    fn program(&self) -> PathBuf {
        self.0
            .peers
            .join("npm/node_modules/supergateway/dist/index.js")
    }
}

impl Target for Supergateway {
    fn name(&self) -> &'static str {
        "supergateway"
    }

    fn title(&self) -> String {
        "supergateway 4.0.0".to_owned()
    }

    fn amounts(&self) -> Amounts {
        Amounts {
            single: 20_000,
            fan: Some(100),
            sessions: None,
            idle: Some(1000),
            replay: None,
            stalled: Some(500),
        }
    }

    fn missing(&self) -> Option<String> {
        absent(&self.program())
    }

    fn start(&self, folder: &Path) -> Outcome<Box<dyn Running>> {
        Alone::start(
            folder.join("supergateway.log"),
            &[("HOME", folder.as_os_str())],
            session,
            |port| {
                let (program, agent) = (self.program(), self.0.agent());
                let command: [&OsStr; 8] = [
                    "node".as_ref(),
                    program.as_ref(),
                    "--stdio".as_ref(),
                    agent.as_ref(),
                    "--port".as_ref(),
                    port.as_ref(),
                    "--logLevel".as_ref(),
                    "none".as_ref(),
                ];
                command.map(OsStr::to_owned).to_vec()
            },
        )
    }
}

/// A separate stream, whose first event contains the URL for messages.
fn session(address: SocketAddr, _: usize) -> Outcome<Session> {
    let follow = http::request("GET", address, "/sse", &[STREAM.to_owned()], None);
    let (path, stream) = endpoint(address, &follow)?;
    let post = move |body: &str| http::request("POST", address, &path, &[], Some(body));
    for message in [rpc::initialize(), rpc::new_session()] {
        http::expect(address, &post(&message), 202)?;
    }
    // This stream also receives all output of the agent.
    let mut drained = stream.try_clone()?;
    std::thread::spawn(move || io::copy(&mut drained, &mut io::sink()));
    Ok(Session {
        address,
        follow,
        replay: None,
        prompt_address: address,
        prompt: Box::new(move |text| post(&rpc::prompt(text))),
        turn_end: None,
        _held: vec![stream],
    })
}

fn endpoint(address: SocketAddr, follow: &[u8]) -> Outcome<(String, TcpStream)> {
    let mut stream = http::connect(address)?;
    stream.write_all(follow)?;
    let (mut seen, mut buffer) = (String::new(), [0; 4096]);
    loop {
        if let Some((path, _)) = seen
            .split_once("data: ")
            .and_then(|(_, rest)| rest.split_once('\n'))
        {
            return Ok((path.trim().to_owned(), stream));
        }
        match stream.read(&mut buffer)? {
            0 => return Err("the stream ended".into()),
            read => seen.push_str(&String::from_utf8_lossy(&buffer[..read])),
        }
    }
}
