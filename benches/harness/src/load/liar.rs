//! A server that sends wrong numbers and ids. Readers must detect every error.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};

use super::{Plan, Report, live};
use crate::Outcome;
use crate::agent::Prompt;
use crate::http::{self, Head};
use crate::marker::{BLANK, Marker};
use crate::targets::{Running, Session};

const EVENTS: u32 = 5;

struct Liar(SocketAddr);

impl Running for Liar {
    fn session(&mut self, _: usize) -> Outcome<Session> {
        let address = self.0;
        Ok(Session {
            address,
            follow: http::request("GET", address, "/", &[], None),
            replay: None,
            prompt_address: address,
            prompt: Box::new(move |text| http::request("POST", address, "/", &[], Some(text))),
            turn_end: None,
            _held: Vec::new(),
        })
    }

    fn workers(&self) -> Vec<u32> {
        Vec::new()
    }

    fn stop(self: Box<Self>) -> Outcome {
        Ok(())
    }
}

/// Streams that send these numbers with these ids after a prompt, one chunk each.
fn lie(frames: &[(u32, u32)]) -> Liar {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let frames = frames.to_vec();
    std::thread::spawn(move || {
        let mut streams = Vec::new();
        for client in listener.incoming() {
            let mut client = client.unwrap();
            if request(&mut client).request_line().0 == "GET" {
                client
                    .write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
                    .unwrap();
                streams.push(client);
                continue;
            }
            client
                .write_all(b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n")
                .unwrap();
            for stream in &mut streams {
                for &(id, number) in &frames {
                    let mut mark = BLANK.as_bytes().to_vec();
                    Marker::stamp(&mut mark, number.into());
                    let frame = format!("id: k-{id}\ndata: {}\n\n", String::from_utf8_lossy(&mark));
                    write!(stream, "{:x}\r\n{frame}\r\n", frame.len()).unwrap();
                }
                // The stream ends, so that a reader that expects more events does not wait.
                stream.write_all(b"0\r\n\r\n").unwrap();
            }
            return;
        }
    });
    Liar(address)
}

fn request(client: &mut TcpStream) -> Head {
    let mut bytes = Vec::new();
    let mut buffer = [0; 1024];
    loop {
        let read = client.read(&mut buffer).unwrap();
        bytes.extend_from_slice(&buffer[..read]);
        if let Some((head, _)) = Head::parse(&bytes).unwrap() {
            return head;
        }
    }
}

fn report_of(frames: &[(u32, u32)], readers: usize) -> Report {
    let mut liar = lie(frames);
    let session = liar.session(0).unwrap();
    let plan = Plan {
        strict: true,
        ..Plan::new(readers, Prompt::burst(EVENTS.into()))
    };
    live(&liar, &[session], plan).unwrap()
}

#[test]
fn an_honest_server_is_believed() {
    let report = report_of(&[(7, 0), (8, 1), (9, 2), (10, 3), (11, 4)], 3);
    assert_eq!(
        (
            report.readers,
            report.complete,
            report.events,
            report.faults
        ),
        (3, 3, 15, 0)
    );
    assert_eq!(report.complaint, None);
}

#[test]
fn a_lost_a_doubled_and_a_misplaced_event_do_not_pass() {
    for (lie, frames) in [
        ("the first is lost", vec![(1, 1), (2, 2), (3, 3), (4, 4)]),
        ("one is lost", vec![(1, 0), (2, 1), (3, 3), (4, 4)]),
        ("the last is lost", vec![(1, 0), (2, 1), (3, 2), (4, 3)]),
        (
            "one comes twice",
            vec![(1, 0), (2, 1), (3, 1), (4, 2), (5, 3), (6, 4)],
        ),
        (
            "the last comes twice",
            vec![(1, 0), (2, 1), (3, 2), (4, 3), (5, 4), (6, 4)],
        ),
        (
            "two change places",
            vec![(1, 0), (2, 2), (3, 1), (4, 3), (5, 4)],
        ),
        ("none comes", vec![]),
    ] {
        let report = report_of(&frames, 2);
        assert_eq!(report.complete, 0, "{lie}");
    }
}

#[test]
fn an_id_with_a_hole_does_not_pass() {
    let report = report_of(&[(1, 0), (2, 1), (4, 2), (5, 3), (6, 4)], 2);
    assert_eq!((report.complete, report.faults), (2, 2));
}
