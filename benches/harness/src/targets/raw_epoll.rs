//! The physical limit.

use std::net::SocketAddr;
use std::path::Path;

use super::{Alone, Amounts, LIMIT, Places, Running, STREAM, Session, Target, absent};
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
        Alone::start(
            folder.join("raw-epoll.log"),
            &[],
            |address, number| Ok(session(address, number)),
            |port| {
                vec![
                    self.0.programs.join("raw-epoll").into(),
                    port.into(),
                    self.0.agent().into(),
                ]
            },
        )
    }
}

fn session(address: SocketAddr, number: usize) -> Session {
    let events = format!("/s/{number}/events");
    let get = |headers: &[&str]| {
        http::request(
            "GET",
            address,
            &events,
            &headers
                .iter()
                .map(|&line| line.to_owned())
                .collect::<Vec<_>>(),
            None,
        )
    };
    Session {
        address,
        follow: get(&[STREAM]),
        replay: Some(get(&[STREAM, "Last-Event-ID: 0"])),
        prompt_address: address,
        prompt: Box::new(move |text| {
            http::request(
                "POST",
                address,
                &format!("/s/{number}/prompt"),
                &[],
                Some(text),
            )
        }),
        turn_end: None,
        _held: Vec::new(),
    }
}
