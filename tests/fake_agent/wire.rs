//! Output, and the agent's requests that wait for an answer.

use std::collections::HashMap;
use std::fmt::Display;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Mutex, PoisonError};

/// The client's answer to a request: the raw result, or the code of the error.
pub(crate) type Reply = Result<String, i64>;

#[derive(Debug)]
pub(crate) struct Wire {
    stdout: Mutex<()>,
    waiting: Mutex<HashMap<String, SyncSender<Reply>>>,
    next: AtomicU64,
    strings: bool,
}

impl Wire {
    pub(crate) fn new(first: u64, strings: bool) -> Self {
        Self {
            stdout: Mutex::default(),
            waiting: Mutex::default(),
            next: AtomicU64::new(first),
            strings,
        }
    }

    /// Writes to the file descriptor directly: one call is one write to the pipe.
    pub(crate) fn write(&self, bytes: &[u8]) {
        self.write_pieces(&[bytes]);
    }

    /// Several writes without output of another turn between them.
    pub(crate) fn write_pieces(&self, pieces: &[&[u8]]) {
        let _one_at_a_time = self.stdout.lock().unwrap_or_else(PoisonError::into_inner);
        super::journal::sent(pieces);
        for piece in pieces {
            let mut rest = *piece;
            while !rest.is_empty() {
                match rustix::io::write(rustix::stdio::stdout(), rest) {
                    Ok(written) => rest = &rest[written..],
                    Err(rustix::io::Errno::INTR) => {}
                    // The reader has closed the pipe.
                    Err(_) => std::process::exit(0),
                }
            }
        }
    }

    pub(crate) fn line(&self, json: impl Display) {
        self.write(format!("{json}\n").as_bytes());
    }

    pub(crate) fn update(&self, session: &str, update: impl Display) {
        self.line(update_line(session, update));
    }

    pub(crate) fn answer(&self, id: &str, result: impl Display) {
        self.line(format_args!(
            r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#
        ));
    }

    pub(crate) fn fail(&self, id: &str, code: i64, message: &str, data: Option<String>) {
        let message = string(message);
        let data = data.map_or(String::new(), |data| format!(r#","data":{data}"#));
        self.line(format_args!(
            r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":{code},"message":{message}{data}}}}}"#
        ));
    }

    /// Sends a request. Returns its raw id and the receiver of its answer.
    pub(crate) fn request(&self, method: &str, params: impl Display) -> (String, Receiver<Reply>) {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let id = if self.strings {
            format!("\"req-{number}\"")
        } else {
            number.to_string()
        };
        let answer = self.request_as(&id, method, params);
        (id, answer)
    }

    /// The same with an id of the caller. An earlier receiver for this id gets no answer.
    pub(crate) fn request_as(
        &self,
        id: &str,
        method: &str,
        params: impl Display,
    ) -> Receiver<Reply> {
        let receiver = self.expect(id);
        self.line(format_args!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{params}}}"#
        ));
        receiver
    }

    /// Registers a receiver for the answer to a request with this id.
    pub(crate) fn expect(&self, id: &str) -> Receiver<Reply> {
        let (sender, receiver) = sync_channel(1);
        self.waiting
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(id.to_owned(), sender);
        receiver
    }

    /// Handles an answer of the client. Ignores an unknown id.
    pub(crate) fn resolve(&self, id: &str, reply: Reply) {
        let waiting = self
            .waiting
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(id);
        if let Some(sender) = waiting {
            let _ = sender.try_send(reply);
        }
    }
}

pub(crate) fn update_line(session: &str, update: impl Display) -> String {
    let session = string(session);
    format!(
        r#"{{"jsonrpc":"2.0","method":"session/update","params":{{"sessionId":{session},"update":{update}}}}}"#
    )
}

/// A chunk of the agent's message. `text` is a raw JSON string.
pub(crate) fn chunk(text: impl Display) -> String {
    content_chunk("agent_message_chunk", text)
}

pub(crate) fn content_chunk(kind: &str, text: impl Display) -> String {
    format!(r#"{{"sessionUpdate":"{kind}","content":{{"type":"text","text":{text}}}}}"#)
}

pub(crate) fn string(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
