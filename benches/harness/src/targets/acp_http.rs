//! The reference ACP HTTP server: the crate agent-client-protocol-http.

use std::io::{Read as _, Write as _};
use std::net::SocketAddr;
use std::path::Path;

use memchr::memmem;

use super::{Alone, Amounts, Places, Running, STREAM, Session, Target, absent};
use crate::{Outcome, http, rpc};

const PATH: &str = "/acp";

#[derive(Debug)]
pub(super) struct AcpHttp(pub(super) Places);

impl Target for AcpHttp {
    fn name(&self) -> &'static str {
        "acp-http"
    }

    fn title(&self) -> String {
        "reference ACP HTTP server 5.0.0".to_owned()
    }

    fn amounts(&self) -> Amounts {
        // A stream has one reader. A second reader gets 409.
        Amounts {
            single: 100_000,
            fan: None,
            sessions: Some(2000),
            idle: None,
            replay: None,
            stalled: None,
        }
    }

    fn missing(&self) -> Option<String> {
        absent(&self.0.programs.join("acp-http-peer"))
    }

    fn start(&self, folder: &Path) -> Outcome<Box<dyn Running>> {
        Alone::start(folder.join("acp-http.log"), &[], session, |port| {
            vec![
                self.0.programs.join("acp-http-peer").into(),
                port.into(),
                self.0.agent().into(),
            ]
        })
    }
}

/// A connection with its own agent, and the agent's first session.
fn session(address: SocketAddr, _: usize) -> Outcome<Session> {
    let post =
        |headers: &[String], body: &str| http::request("POST", address, PATH, headers, Some(body));
    let (head, body) = http::call(address, &post(&[], &rpc::initialize()))?;
    let id = head
        .header("acp-connection-id")
        .ok_or_else(|| format!("no connection's id: {body}"))?;
    let connection = format!("Acp-Connection-Id: {id}");
    let stream = [connection.clone(), STREAM.to_owned()];
    let mut answers = http::connect(address)?;
    answers.write_all(&http::request("GET", address, PATH, &stream, None))?;
    http::call(
        address,
        &post(std::slice::from_ref(&connection), &rpc::new_session()),
    )?;
    let (mut seen, mut buffer) = (Vec::new(), [0; 4096]);
    while memmem::find(&seen, b"sess-1").is_none() {
        match answers.read(&mut buffer)? {
            0 => return Err("the answers' stream ended".into()),
            read => seen.extend_from_slice(&buffer[..read]),
        }
    }
    let session = [connection, "Acp-Session-Id: sess-1".to_owned()];
    let follow = [&session[..], &[STREAM.to_owned()]].concat();
    Ok(Session {
        address,
        follow: http::request("GET", address, PATH, &follow, None),
        replay: None,
        prompt_address: address,
        prompt: Box::new(move |text| {
            http::request("POST", address, PATH, &session, Some(&rpc::prompt(text)))
        }),
        turn_end: None,
        _held: vec![answers],
    })
}
