//! The WebSocket of a member of the fleet: passes frames between the socket and the member.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::ws::{Message, WebSocket, close_code};
use bytes::Bytes;
use tokio::time::{Instant, timeout, timeout_at};

use crate::auth::Admission;
use crate::server::ConnectionPermit;
use crate::stream::StreamGuard;
use crate::surface::http::{AppState, close_frame, send_last};
use agents::cca::CcaConnection;
use base::types::{AgentName, QueuedLine};
use wire::fleet::{
    self, HEARTBEAT, Hello, Joined, Member, MemberFrame, MemberInfo, MemberKey, MemberState,
    REMOVED, SILENCE,
};

const HELLO_TIMEOUT: Duration = Duration::from_secs(10);
const SEND_TIMEOUT: Duration = Duration::from_secs(30);

pub(crate) struct FleetSocket {
    pub(crate) app: AppState,
    pub(crate) admission: Arc<Admission>,
    pub(crate) key: MemberKey,
    pub(crate) cca: Option<(CcaConnection, MemberInfo)>,
    pub(crate) _guard: StreamGuard,
    /// Counts the connection while it is open, and the memory of its messages.
    pub(crate) permit: ConnectionPermit,
}

enum End {
    /// The member has disconnected.
    Disconnected,
    /// The gateway closes the socket, with this text for the member.
    Closed(u16, String),
}

/// A violation of the protocol.
impl From<String> for End {
    fn from(violation: String) -> Self {
        Self::Closed(close_code::PROTOCOL, violation)
    }
}

impl FleetSocket {
    pub(crate) async fn run(mut self, mut socket: WebSocket) {
        let cca = self.cca.take();
        let Err(end) = self.serve(&mut socket, cca).await;
        let exceeded = self.permit.messages_exceeded();
        let exceeded =
            exceeded.map(|exceeded| End::Closed(close_code::AGAIN, exceeded.to_string()));
        let End::Closed(code, reason) = exceeded.unwrap_or(end) else {
            return;
        };
        tracing::info!(key = %self.key.name, code, reason, "closed the connection of a member");
        send_last(&mut socket, [close_frame(code, &reason)]).await;
    }

    async fn serve(
        &self,
        socket: &mut WebSocket,
        cca: Option<(CcaConnection, MemberInfo)>,
    ) -> Result<Infallible, End> {
        let (codec, mut joined) = match cca {
            None => {
                let hello = receive_hello(socket, &self.permit).await?;
                (Codec::Frames, self.join(hello)?)
            }
            Some((connection, info)) => {
                let (hello, messages) = connection.member().connect(info);
                let joined = self.join(hello)?;
                for text in messages {
                    send(socket, Message::Text(text.into())).await?;
                }
                (Codec::Cca(connection), joined)
            }
        };
        let Err(end) = self.exchange(socket, &joined, &codec).await;
        if let End::Closed(code, reason) = &end {
            joined.ends(reason.clone());
            if *code == REMOVED {
                self.app.cca.forget(joined.member.name());
            }
        }
        Err(end)
    }

    async fn exchange(
        &self,
        socket: &mut WebSocket,
        joined: &Joined,
        codec: &Codec,
    ) -> Result<Infallible, End> {
        let member = &joined.member;
        let connection = joined.connection;
        let began = Instant::now();
        let clock = || u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
        let link = Link { joined, codec };
        let welcome = codec.outgoing(Member::welcome())?;
        link.pass(socket, welcome, clock()).await?;
        let shutdown = &self.app.shutdown;
        let mut heartbeat = tokio::time::interval(HEARTBEAT);
        let mut heard = Instant::now();
        let mut key_ended = std::pin::pin!(self.admission.wait_key_ended());
        loop {
            while let Some(frame) = member.next_frame(connection) {
                link.pass(socket, codec.outgoing(frame)?, clock()).await?;
            }
            while let Some((message, queued)) = codec.next_queued() {
                send(socket, message).await?;
                queued.delivered();
            }
            tokio::select! {
                () = key_ended.as_mut() => return Err(key_has_ended()),
                () = shutdown.closing_started() => {
                    return Err(End::Closed(close_code::AWAY, "the gateway is shutting down".to_owned()));
                }
                () = member.replaced(connection) => {
                    // The end of a key also removes its members.
                    if !self.admission.is_key_valid() {
                        return Err(key_has_ended());
                    }
                    let (code, reason) = if member.state() == MemberState::Disconnected {
                        (REMOVED, fleet::REMOVED_TEXT)
                    } else {
                        (close_code::POLICY, "another connection of the member has replaced this one")
                    };
                    return Err(End::Closed(code, reason.to_owned()));
                }
                () = member.woken() => {}
                received = receive(socket, &self.permit), if codec.has_room() => {
                    heard = Instant::now();
                    link.pass(socket, codec.incoming(received?)?, clock()).await?;
                }
                _ = heartbeat.tick() => {
                    // A socket that is not read cannot show a heartbeat.
                    if heard.elapsed() > SILENCE && codec.has_room() {
                        return Err(End::Closed(close_code::POLICY, "no heartbeat arrived in time".to_owned()));
                    }
                    let heartbeat = codec.outgoing(member.heartbeat(clock()))?;
                    link.pass(socket, heartbeat, clock()).await?;
                }
            }
        }
    }

    fn join(&self, hello: Hello) -> Result<Joined, End> {
        let name = hello.name.clone();
        let joined = check_name(&self.app, &name, &self.key).and_then(|()| {
            let joined = self.app.fleet.join(hello, &self.key);
            joined.map_err(|error| rejected(&self.app, &name, &self.key, error.to_string()))
        });
        let joined = joined.map_err(|reason| End::Closed(close_code::POLICY, reason))?;
        tracing::info!(member = %joined.member.name(), key = %self.key.name, state = "connected", "a member of the fleet connected");
        Ok(joined)
    }
}

pub(crate) fn check_name(app: &AppState, name: &AgentName, key: &MemberKey) -> Result<(), String> {
    let configured = app.catalogue.agent(name);
    let checked = if configured.is_some_and(|spec| !spec.is_member()) {
        Err("an agent of the configuration has this name; use another one".to_owned())
    } else {
        let fleet = &app.fleet;
        fleet.check(name, key).map_err(|error| error.to_string())
    };
    checked.map_err(|reason| rejected(app, name, key, reason))
}

pub(crate) fn rejected(
    app: &AppState,
    name: &AgentName,
    key: &MemberKey,
    reason: String,
) -> String {
    app.fleet.rejected(name, &key.name, reason.clone());
    reason
}

fn key_has_ended() -> End {
    End::Closed(close_code::POLICY, "the key has ended".to_owned())
}

struct Link<'a> {
    joined: &'a Joined,
    codec: &'a Codec,
}

impl Link<'_> {
    /// Passes the results of a conversion on, and their responses.
    async fn pass(
        &self,
        socket: &mut WebSocket,
        converted: Converted,
        clock: u64,
    ) -> Result<(), End> {
        for message in converted.messages {
            send(socket, message).await?;
        }
        for (frame, payload) in converted.for_fleet {
            let member = &self.joined.member;
            let response = member.receive(self.joined.connection, frame, payload, clock);
            if let Some(response) = response.map_err(|error| error.to_string())? {
                for message in self.codec.outgoing(response)?.messages {
                    send(socket, message).await?;
                }
            }
        }
        Ok(())
    }
}

/// Waits for `hello`, which must be the first frame of `connect`.
async fn receive_hello(socket: &mut WebSocket, permit: &ConnectionPermit) -> Result<Hello, End> {
    let deadline = Instant::now() + HELLO_TIMEOUT;
    loop {
        let received = timeout_at(deadline, receive(socket, permit)).await;
        let received = received.map_err(|_| "hello did not arrive in time".to_owned())?;
        let converted = Codec::Frames.incoming(received?)?;
        match converted.for_fleet.into_iter().next_back() {
            Some((MemberFrame::Hello(hello), _)) => return Ok(*hello),
            Some(_) => return Err("the first frame must be hello".to_owned().into()),
            None => {}
        }
    }
}

/// The next message, except the close frame. A whole message is handled at once, so it releases its memory. A ping can
/// arrive between the fragments of a message, so it releases nothing.
async fn receive(socket: &mut WebSocket, permit: &ConnectionPermit) -> Result<Message, End> {
    match socket.recv().await {
        Some(Ok(Message::Close(_)) | Err(_)) | None => Err(End::Disconnected),
        Some(Ok(message)) => {
            match &message {
                Message::Ping(payload) | Message::Pong(payload) => {
                    permit.control_frame_handled(payload);
                }
                _ => permit.message_handled(),
            }
            Ok(message)
        }
    }
}

async fn send(socket: &mut WebSocket, message: Message) -> Result<(), End> {
    match timeout(SEND_TIMEOUT, socket.send(message)).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(_)) | Err(_) => Err(End::Disconnected),
    }
}

enum Codec {
    /// `acp-gateway connect`: each binary message is a frame.
    Frames,
    Cca(CcaConnection),
}

#[derive(Default)]
struct Converted {
    for_fleet: Vec<(MemberFrame, Bytes)>,
    messages: Vec<Message>,
}

impl Codec {
    fn has_room(&self) -> bool {
        match self {
            Self::Frames => true,
            Self::Cca(connection) => connection.member().has_room(),
        }
    }

    fn next_queued(&self) -> Option<(Message, QueuedLine)> {
        let Self::Cca(connection) = self else {
            return None;
        };
        let queued = connection.member().next_queued()?;
        let text = String::from_utf8_lossy(queued.bytes()).into_owned();
        Some((Message::Text(text.into()), queued))
    }

    fn outgoing(&self, frame: Bytes) -> Result<Converted, String> {
        match self {
            Self::Frames => Ok(Converted {
                for_fleet: Vec::new(),
                messages: vec![Message::Binary(frame)],
            }),
            Self::Cca(connection) => {
                let (frame, payload) = fleet::decode(frame).map_err(|error| error.to_string())?;
                let output = connection.member().frame(frame, &payload);
                Ok(output.map_err(|error| error.to_string())?.into())
            }
        }
    }

    /// Converts a message of the member. Errors are violations of the protocol.
    fn incoming(&self, message: Message) -> Result<Converted, String> {
        match (self, message) {
            (_, Message::Ping(_) | Message::Pong(_)) => Ok(Converted::default()),
            (Self::Frames, Message::Binary(bytes)) => {
                let frame = fleet::decode(bytes).map_err(|error| error.to_string())?;
                Ok(Converted {
                    for_fleet: vec![frame],
                    messages: Vec::new(),
                })
            }
            (Self::Cca(connection), Message::Text(text)) => {
                let output = connection.member().message(&text);
                Ok(output.map_err(|error| error.to_string())?.into())
            }
            (Self::Frames, _) => Err("frames are binary messages".to_owned()),
            (Self::Cca(_), _) => Err("messages are text messages".to_owned()),
        }
    }
}

impl From<agents::cca::Output> for Converted {
    fn from(output: agents::cca::Output) -> Self {
        let texts = output.messages.into_iter();
        Self {
            for_fleet: output.for_fleet,
            messages: texts.map(|text| Message::Text(text.into())).collect(),
        }
    }
}
