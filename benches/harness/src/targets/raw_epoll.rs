//! The physical limit.

use std::net::SocketAddr;
use std::path::Path;

use super::{Amounts, LIMIT, Places, Running, STREAM, Session, Target, absent};
use crate::server::{Server, free_port};
use crate::{Outcome, http};

#[derive(Debug)]
pub(super) struct RawEpoll(pub(super) Places);

impl Target for RawEpoll {
    fn name(&self) -> &'static str {
        LIMIT
    }

    fn title(&self) -> String {
        "raw-epoll (the limit)".to_owned()
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
        absent(&self.0.programs.join("raw-epoll"))
    }

    fn start(&self, folder: &Path) -> Outcome<Box<dyn Running>> {
        let address = free_port()?;
        let port = address.port().to_string();
        let command = [self.0.programs.join("raw-epoll"), port.into(), self.0.agent()];
        let mut server = Server::start(&command, &[], folder.join("raw-epoll.log"))?;
        server.listens(address)?;
        Ok(Box::new(Up { server, address }))
    }
}

struct Up {
    server: Server,
    address: SocketAddr,
}

impl Running for Up {
    fn session(&mut self, number: usize) -> Outcome<Session> {
        let address = self.address;
        let events = format!("/s/{number}/events");
        let get = |headers: &[&str]| {
            http::request(
                "GET",
                address,
                &events,
                &headers.iter().map(|&line| line.to_owned()).collect::<Vec<_>>(),
                None,
            )
        };
        Ok(Session {
            address,
            follow: get(&[STREAM]),
            replay: Some(get(&[STREAM, "Last-Event-ID: 0"])),
            prompt_address: address,
            prompt: Box::new(move |text| {
                http::request("POST", address, &format!("/s/{number}/prompt"), &[], Some(text))
            }),
            turn_end: None,
            _held: Vec::new(),
        })
    }

    fn workers(&self) -> Vec<u32> {
        vec![self.server.pid()]
    }

    fn stop(self: Box<Self>) -> Outcome {
        self.server.stop()
    }
}
