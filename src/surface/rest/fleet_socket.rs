//! The WebSocket of a member of the fleet: passes frames between the socket and the member.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::ws::{CloseFrame, Message, WebSocket, close_code};
use bytes::Bytes;
use tokio::time::{Instant, timeout, timeout_at};

use crate::auth::Admission;
use crate::fleet::{self, HEARTBEAT, Hello, Joined, Member, MemberFrame, MemberState, REMOVED, SILENCE};
use crate::server::ConnectionPermit;
use crate::stream::StreamGuard;
use crate::surface::Gateway;

/// How long a member may wait before it sends `hello`.
const HELLO_TIMEOUT: Duration = Duration::from_secs(10);
/// The time limit for one frame to the member.
const SEND_TIMEOUT: Duration = Duration::from_secs(30);
/// The time limit for the close frame.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// The state of one socket.
pub(crate) struct FleetSocket {
    pub(crate) gateway: Gateway,
    /// Reports the end of the key.
    pub(crate) admission: Arc<Admission>,
    /// The name of the key.
    pub(crate) key: Arc<str>,
    pub(crate) _guard: StreamGuard,
    /// Counts the connection while it is open.
    pub(crate) _permit: ConnectionPermit,
}

/// The end of the socket: the close code and a text for the member. `None`: the member has disconnected.
type End = Option<(u16, String)>;

/// A violation of the protocol.
fn violation(error: &impl ToString) -> (u16, String) {
    (close_code::PROTOCOL, error.to_string())
}

impl FleetSocket {
    pub(crate) async fn run(self, mut socket: WebSocket) {
        let Err(end) = self.serve(&mut socket).await;
        let Some((code, reason)) = end else { return };
        tracing::info!(key = %self.key, code, reason, "closed the connection of a member");
        let frame = Message::Close(Some(CloseFrame { code, reason: reason.into() }));
        // A member that does not accept the frame in time counts as disconnected.
        drop(timeout(CLOSE_TIMEOUT, socket.send(frame)).await);
    }

    async fn serve(&self, socket: &mut WebSocket) -> Result<Infallible, End> {
        let mut joined = self.join(socket).await?;
        let Err(end) = self.exchange(socket, &joined).await;
        if let Some((_, reason)) = &end {
            joined.ends(reason.clone());
        }
        Err(end)
    }

    /// Exchanges frames until the end of the connection.
    async fn exchange(&self, socket: &mut WebSocket, joined: &Joined) -> Result<Infallible, End> {
        let (member, connection) = (&joined.member, joined.connection);
        send(socket, Member::welcome()).await?;
        let shutdown = &self.gateway.shutdown;
        let began = Instant::now();
        let clock = || u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
        let mut heartbeat = tokio::time::interval(HEARTBEAT);
        let mut heard = Instant::now();
        let mut key_ended = std::pin::pin!(self.admission.wait_key_ended());
        loop {
            while let Some(frame) = member.next_frame(connection) {
                send(socket, frame).await?;
            }
            tokio::select! {
                () = key_ended.as_mut() => return Err(Some((close_code::POLICY, "the key has ended".to_owned()))),
                () = shutdown.closing_started() => {
                    return Err(Some((close_code::AWAY, "the gateway is shutting down".to_owned())));
                }
                () = member.replaced(connection) => {
                    let (code, reason) = if member.state() == MemberState::Disconnected {
                        (REMOVED, fleet::REMOVED_TEXT)
                    } else {
                        (close_code::POLICY, "another connection of the member has replaced this one")
                    };
                    return Err(Some((code, reason.to_owned())));
                }
                () = member.woken() => {}
                received = receive(socket) => {
                    heard = Instant::now();
                    let Some(bytes) = received? else { continue };
                    let frame = fleet::decode::<MemberFrame>(bytes).map_err(|error| Some(violation(&error)))?;
                    let response = member.receive(connection, frame, clock());
                    if let Some(response) = response.map_err(|error| Some(violation(&error)))? {
                        send(socket, response).await?;
                    }
                }
                _ = heartbeat.tick() => {
                    if heard.elapsed() > SILENCE {
                        return Err(Some((close_code::POLICY, "no heartbeat arrived in time".to_owned())));
                    }
                    send(socket, member.heartbeat(clock())).await?;
                }
            }
        }
    }

    /// Waits for `hello`, which must be the first frame.
    async fn join(&self, socket: &mut WebSocket) -> Result<Joined, End> {
        let deadline = Instant::now() + HELLO_TIMEOUT;
        let hello = loop {
            let received = timeout_at(deadline, receive(socket)).await;
            let late = |_| Some((close_code::PROTOCOL, "hello did not arrive in time".to_owned()));
            let Some(bytes) = received.map_err(late)?? else { continue };
            match fleet::decode::<MemberFrame>(bytes) {
                Ok((MemberFrame::Hello(hello), _)) => break hello,
                Ok(_) => return Err(Some(violation(&"the first frame must be hello"))),
                Err(error) => return Err(Some(violation(&error))),
            }
        };
        let Hello { name, .. } = &*hello;
        if self.gateway.catalogue.agent(name).is_some_and(|spec| !spec.is_member()) {
            let reason = "an agent of the configuration has this name; use another one";
            self.gateway.fleet.rejected(name, &self.key, reason.to_owned());
            return Err(Some((close_code::POLICY, reason.to_owned())));
        }
        let name = name.clone();
        let joined = self.gateway.fleet.join(*hello, &self.key).map_err(|error| {
            self.gateway.fleet.rejected(&name, &self.key, error.to_string());
            Some((close_code::POLICY, error.to_string()))
        })?;
        tracing::info!(member = %joined.member.name(), key = %self.key, state = "connected", "a member of the fleet connected");
        Ok(joined)
    }
}

/// The next binary message. `None` for other messages.
async fn receive(socket: &mut WebSocket) -> Result<Option<Bytes>, End> {
    match socket.recv().await {
        Some(Ok(Message::Binary(bytes))) => Ok(Some(bytes)),
        Some(Ok(Message::Ping(_) | Message::Pong(_))) => Ok(None),
        Some(Ok(Message::Text(_))) => Err(Some(violation(&"frames are binary messages"))),
        Some(Ok(Message::Close(_)) | Err(_)) | None => Err(None),
    }
}

async fn send(socket: &mut WebSocket, frame: Bytes) -> Result<(), End> {
    match timeout(SEND_TIMEOUT, socket.send(Message::Binary(frame))).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(_)) | Err(_) => Err(None),
    }
}
