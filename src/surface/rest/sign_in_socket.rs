//! The WebSocket of a terminal sign-in. Binary frames carry the terminal bytes, and text frames carry JSON
//! control messages.
//!
//! Input and output may contain secrets. The gateway counts these bytes, but it neither stores nor logs them.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;

use axum::extract::ws::{Message, WebSocket};
use bytes::{Buf, Bytes, BytesMut};
use serde::Serialize;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{Instant, sleep_until};

use crate::auth::Admission;
use crate::server::ConnectionPermit;
use crate::stream::StreamGuard;
use crate::surface::http::{AppState, send_last};
use agents::agent::Terminal;
use agents::pool::SignIn;
use children::{PtyChild, PtySize};
use events::api::{Problem, ProblemCode};
use events::api::{TerminalFrame, TerminalInput};
use log::audit::SignInRecord;

const TOO_LONG: &str = "the sign-in did not complete in time";
const READ_BYTES: usize = 16 << 10;

pub(crate) struct SignInSocket {
    pub(crate) app: AppState,
    pub(crate) sign_in: SignIn,
    pub(crate) record: SignInRecord,
    pub(crate) admission: Arc<Admission>,
    pub(crate) _stream_guard: StreamGuard,
    pub(crate) _connection_permit: ConnectionPermit,
}

enum End {
    Exited {
        code: Option<i32>,
        signal: Option<String>,
    },
    Disconnected,
    Draining,
    Problem(Box<Problem>),
}

impl SignInSocket {
    /// Relays bytes until the program exits, the client disconnects, or a time limit expires. Dropping the
    /// future ends the program.
    pub(crate) async fn run(mut self, mut socket: WebSocket) {
        let agent = self.sign_in.agent().clone();
        let Err(end) = self.relay(&mut socket).await;
        let frame = match end {
            End::Disconnected => None,
            End::Draining => Some(text(&TerminalFrame::Shutdown)),
            End::Problem(problem) => Some(text(&TerminalFrame::Problem { problem: &problem })),
            End::Exited { code, signal } => {
                tracing::info!(%agent, code, "a terminal sign-in ended");
                if code == Some(0) {
                    self.sign_in.succeeded();
                }
                self.record.end(code == Some(0));
                Some(text(&TerminalFrame::Exit {
                    exit_code: code,
                    signal: signal.as_deref(),
                }))
            }
        };
        // The program is signalled and its pool slot is free before the client receives the last frame.
        drop(self.sign_in);
        if let Some(frame) = frame {
            send_last(&mut socket, [frame, Message::Close(None)]).await;
        }
    }

    async fn relay(&mut self, socket: &mut WebSocket) -> Result<Infallible, End> {
        let limits = Arc::clone(&self.app.limits);
        let shutdown = self.app.shutdown.clone();
        // The future is created once, because each new one looks up all keys.
        let mut key_ended = pin!(self.admission.wait_key_ended());
        let mut timed_out = pin!(sleep_until(Instant::now() + limits.http.sign_in_timeout));
        let mut ping_timer = tokio::time::interval(limits.stream.keep_alive_interval);
        let Terminal {
            output,
            input,
            command,
        } = &mut self.sign_in.terminal;
        let mut state = RelayState {
            output_bytes: 0,
            output_open: true,
            pending_input: Bytes::new(),
            last_progress: Instant::now(),
        };
        let mut buffer = BytesMut::new();
        loop {
            buffer.reserve(READ_BYTES);
            let typing = !state.pending_input.is_empty();
            // The selection is fair. Otherwise a program with endless output could keep the user from ending
            // the sign-in.
            let outgoing = tokio::select! {
                () = shutdown.drain_started() => return Err(End::Draining),
                () = key_ended.as_mut() => return Err(problem(Problem::key_ended())),
                () = timed_out.as_mut() => return Err(timeout(TOO_LONG)),
                () = sleep_until(state.last_progress + children::STDIN_STALL_TIMEOUT), if typing => {
                    return Err(timeout("the sign-in command does not read its input"));
                }
                exit = command.exited(), if !state.output_open => {
                    return Err(End::Exited { code: exit.code, signal: exit.signal });
                }
                read = output.read_buf(&mut buffer), if state.output_open => {
                    state.output_read(read.unwrap_or(0), limits.http.max_sign_in_output_bytes)?;
                    state.output_open.then(|| Message::Binary(buffer.split().freeze()))
                }
                written = input.write(&state.pending_input), if typing => {
                    state.input_written(written.ok());
                    None
                }
                message = socket.recv(), if !typing => {
                    state.handle_message(message.and_then(Result::ok), command)?;
                    None
                }
                _ = ping_timer.tick() => Some(Message::Ping(Bytes::new())),
            };
            if let Some(message) = outgoing {
                // A client that does not read must not delay the end of the sign-in.
                tokio::select! {
                    () = shutdown.drain_started() => return Err(End::Draining),
                    () = key_ended.as_mut() => return Err(problem(Problem::key_ended())),
                    () = timed_out.as_mut() => return Err(timeout(TOO_LONG)),
                    sent = socket.send(message) => sent.map_err(|_| End::Disconnected)?,
                }
            }
        }
    }
}

struct RelayState {
    output_bytes: usize,
    output_open: bool,
    /// The input that the command has not accepted yet.
    pending_input: Bytes,
    /// When input last arrived or was written to the terminal.
    last_progress: Instant,
}

impl RelayState {
    fn output_read(&mut self, bytes: usize, max_bytes: usize) -> Result<(), End> {
        self.output_open = bytes > 0;
        self.output_bytes += bytes;
        if self.output_bytes > max_bytes {
            let detail = "the sign-in command exceeded its output limit";
            return Err(problem(Problem::new(ProblemCode::TooLarge, detail)));
        }
        Ok(())
    }

    fn input_written(&mut self, bytes: Option<usize>) {
        match bytes {
            Some(bytes) => self.pending_input.advance(bytes),
            // The command has ended. Its exit status arrives separately.
            None => self.pending_input.clear(),
        }
        self.last_progress = Instant::now();
    }

    fn handle_message(&mut self, message: Option<Message>, command: &PtyChild) -> Result<(), End> {
        match message {
            Some(Message::Binary(bytes)) => {
                self.pending_input = bytes;
                self.last_progress = Instant::now();
            }
            Some(Message::Text(text)) => match serde_json::from_str(&text) {
                Ok(TerminalInput::Resize { cols, rows }) => {
                    let size = PtySize {
                        cols: cols.get(),
                        rows: rows.get(),
                    };
                    // A command that has ended has no window.
                    let _ = command.resize(size);
                }
                Err(error) => return Err(problem(Problem::invalid("", error.to_string()))),
            },
            Some(Message::Ping(_) | Message::Pong(_)) => {}
            Some(Message::Close(_)) | None => return Err(End::Disconnected),
        }
        Ok(())
    }
}

fn problem(problem: Problem) -> End {
    End::Problem(Box::new(problem))
}

fn timeout(detail: &str) -> End {
    problem(Problem::new(ProblemCode::AgentTimeout, detail))
}

fn text(frame: &impl Serialize) -> Message {
    let json = serde_json::to_string(frame).expect("frames of the gateway serialize");
    Message::Text(json.into())
}
