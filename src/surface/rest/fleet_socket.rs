//! The WebSocket of a member of the fleet: passes frames between the socket and the member.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::ws::{CloseFrame, Message, WebSocket, close_code};
use bytes::Bytes;
use tokio::time::{Instant, timeout, timeout_at};

use crate::auth::Admission;
use crate::server::ConnectionPermit;
use crate::stream::StreamGuard;
use crate::surface::http::Gateway;
use agents::cca::CcaConnection;
use base::types::{AgentName, QueuedLine};
use wire::fleet::{
    self, HEARTBEAT, Hello, Joined, Member, MemberFrame, MemberInfo, MemberKey, MemberState,
    REMOVED, SILENCE,
};

const HELLO_TIMEOUT: Duration = Duration::from_secs(10);
const SEND_TIMEOUT: Duration = Duration::from_secs(30);
/// The size of a reason in a close frame (RFC 6455, section 5.5).
const MAX_REASON_BYTES: usize = 123;
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

pub(crate) struct FleetSocket {
    pub(crate) gateway: Gateway,
    pub(crate) admission: Arc<Admission>,
    pub(crate) key: MemberKey,
    pub(crate) cca: Option<(CcaConnection, MemberInfo)>,
    pub(crate) _guard: StreamGuard,
    /// Counts the connection while it is open, and the memory of its messages.
    pub(crate) permit: ConnectionPermit,
}

/// The end of the socket: the close code and a text for the member. `None`: the member has disconnected.
type End = Option<(u16, String)>;

fn violation(error: &impl ToString) -> (u16, String) {
    (close_code::PROTOCOL, error.to_string())
}

impl FleetSocket {
    pub(crate) async fn run(mut self, mut socket: WebSocket) {
        let cca = self.cca.take();
        let Err(end) = self.serve(&mut socket, cca).await;
        let exceeded = self.permit.messages_exceeded();
        let end = exceeded
            .map(|exceeded| (close_code::AGAIN, exceeded.to_string()))
            .or(end);
        let Some((code, reason)) = end else { return };
        tracing::info!(key = %self.key.name, code, reason, "closed the connection of a member");
        let frame = Message::Close(Some(CloseFrame {
            code,
            reason: reason[..reason.floor_char_boundary(MAX_REASON_BYTES)].into(),
        }));
        // A member that does not accept the frame in time counts as disconnected.
        drop(timeout(CLOSE_TIMEOUT, socket.send(frame)).await);
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
        if let Some((code, reason)) = &end {
            joined.ends(reason.clone());
            if *code == REMOVED {
                self.gateway.cca().forget(joined.member.name());
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
        let (member, connection) = (&joined.member, joined.connection);
        let began = Instant::now();
        let clock = || u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
        let link = Link { joined, codec };
        link.pass(socket, codec.outgoing(Member::welcome()), clock())
            .await?;
        let shutdown = &self.gateway.shutdown;
        let mut heartbeat = tokio::time::interval(HEARTBEAT);
        let mut heard = Instant::now();
        let mut key_ended = std::pin::pin!(self.admission.wait_key_ended());
        loop {
            while let Some(frame) = member.next_frame(connection) {
                link.pass(socket, codec.outgoing(frame), clock()).await?;
            }
            while let Some((message, queued)) = codec.next_queued() {
                send(socket, message).await?;
                queued.delivered();
            }
            tokio::select! {
                () = key_ended.as_mut() => return Err(Some(key_has_ended())),
                () = shutdown.closing_started() => {
                    return Err(Some((close_code::AWAY, "the gateway is shutting down".to_owned())));
                }
                () = member.replaced(connection) => {
                    // The end of a key also removes its members.
                    if !self.admission.is_key_valid() {
                        return Err(Some(key_has_ended()));
                    }
                    let (code, reason) = if member.state() == MemberState::Disconnected {
                        (REMOVED, fleet::REMOVED_TEXT)
                    } else {
                        (close_code::POLICY, "another connection of the member has replaced this one")
                    };
                    return Err(Some((code, reason.to_owned())));
                }
                () = member.woken() => {}
                received = receive(socket, &self.permit), if codec.has_room() => {
                    heard = Instant::now();
                    link.pass(socket, codec.incoming(received?), clock()).await?;
                }
                _ = heartbeat.tick() => {
                    // A socket that is not read cannot show a heartbeat.
                    if heard.elapsed() > SILENCE && codec.has_room() {
                        return Err(Some((close_code::POLICY, "no heartbeat arrived in time".to_owned())));
                    }
                    link.pass(socket, codec.outgoing(member.heartbeat(clock())), clock()).await?;
                }
            }
        }
    }

    fn join(&self, hello: Hello) -> Result<Joined, End> {
        let name = hello.name.clone();
        let joined = check_name(&self.gateway, &name, &self.key).and_then(|()| {
            self.gateway
                .fleet
                .join(hello, &self.key)
                .map_err(|error| rejected(&self.gateway, &name, &self.key, error.to_string()))
        });
        let joined = joined.map_err(|reason| Some((close_code::POLICY, reason)))?;
        tracing::info!(member = %joined.member.name(), key = %self.key.name, state = "connected", "a member of the fleet connected");
        Ok(joined)
    }
}

pub(crate) fn check_name(
    gateway: &Gateway,
    name: &AgentName,
    key: &MemberKey,
) -> Result<(), String> {
    let configured = gateway.catalogue.agent(name);
    let checked = if configured.is_some_and(|spec| !spec.is_member()) {
        Err("an agent of the configuration has this name; use another one".to_owned())
    } else {
        let fleet = &gateway.fleet;
        fleet.check(name, key).map_err(|error| error.to_string())
    };
    checked.map_err(|reason| rejected(gateway, name, key, reason))
}

pub(crate) fn rejected(
    gateway: &Gateway,
    name: &AgentName,
    key: &MemberKey,
    reason: String,
) -> String {
    gateway.fleet.rejected(name, &key.name, reason.clone());
    reason
}

fn key_has_ended() -> (u16, String) {
    (close_code::POLICY, "the key has ended".to_owned())
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
        converted: Result<Converted, String>,
        clock: u64,
    ) -> Result<(), End> {
        let Joined {
            member, connection, ..
        } = self.joined;
        let Converted {
            for_fleet,
            messages,
        } = converted.map_err(|error| Some(violation(&error)))?;
        for message in messages {
            send(socket, message).await?;
        }
        for frame in for_fleet {
            let response = member.receive(*connection, frame, clock);
            if let Some(response) = response.map_err(|error| Some(violation(&error)))? {
                let converted = self
                    .codec
                    .outgoing(response)
                    .map_err(|error| Some(violation(&error)))?;
                for message in converted.messages {
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
        let late = |_| {
            Some((
                close_code::PROTOCOL,
                "hello did not arrive in time".to_owned(),
            ))
        };
        let converted = Codec::Frames.incoming(received.map_err(late)??);
        match converted
            .map_err(|error| Some(violation(&error)))?
            .for_fleet
            .pop()
        {
            Some((MemberFrame::Hello(hello), _)) => return Ok(*hello),
            Some(_) => return Err(Some(violation(&"the first frame must be hello"))),
            None => {}
        }
    }
}

/// The next message, except the close frame. A whole message is handled at once, so it releases its memory. A ping can
/// arrive between the fragments of a message, so it releases nothing.
async fn receive(socket: &mut WebSocket, permit: &ConnectionPermit) -> Result<Message, End> {
    match socket.recv().await {
        Some(Ok(Message::Close(_)) | Err(_)) | None => Err(None),
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
        Ok(Err(_)) | Err(_) => Err(None),
    }
}

pub(super) enum Codec {
    /// `acp-gateway connect`: each binary message is a frame.
    Frames,
    Cca(CcaConnection),
}

#[derive(Default)]
pub(super) struct Converted {
    pub(super) for_fleet: Vec<(MemberFrame, Bytes)>,
    pub(super) messages: Vec<Message>,
}

impl Codec {
    pub(super) fn has_room(&self) -> bool {
        match self {
            Self::Frames => true,
            Self::Cca(connection) => connection.member().has_room(),
        }
    }

    pub(super) fn next_queued(&self) -> Option<(Message, QueuedLine)> {
        let Self::Cca(connection) = self else {
            return None;
        };
        let queued = connection.member().next_queued()?;
        let text = String::from_utf8_lossy(queued.bytes()).into_owned();
        Some((Message::Text(text.into()), queued))
    }

    pub(super) fn outgoing(&self, frame: Bytes) -> Result<Converted, String> {
        match self {
            Self::Frames => Ok(Converted {
                for_fleet: Vec::new(),
                messages: vec![Message::Binary(frame)],
            }),
            Self::Cca(connection) => {
                let frame = wire::fleet::decode(frame).map_err(|error| error.to_string())?;
                connection
                    .member()
                    .frame(frame)
                    .map(Converted::from)
                    .map_err(|error| error.to_string())
            }
        }
    }

    /// Converts a message of the member. Errors are violations of the protocol.
    pub(super) fn incoming(&self, message: Message) -> Result<Converted, String> {
        match (self, message) {
            (_, Message::Ping(_) | Message::Pong(_)) => Ok(Converted::default()),
            (Self::Frames, Message::Binary(bytes)) => {
                let frame =
                    fleet::decode::<MemberFrame>(bytes).map_err(|error| error.to_string())?;
                Ok(Converted {
                    for_fleet: vec![frame],
                    messages: Vec::new(),
                })
            }
            (Self::Cca(connection), Message::Text(text)) => connection
                .member()
                .message(&text)
                .map(Converted::from)
                .map_err(|error| error.to_string()),
            (Self::Frames, _) => Err("frames are binary messages".to_owned()),
            (Self::Cca(_), _) => Err("messages are text messages".to_owned()),
        }
    }
}

impl From<agents::cca::Output> for Converted {
    fn from(output: agents::cca::Output) -> Self {
        let messages = output
            .messages
            .into_iter()
            .map(|text| Message::Text(text.into()));
        Self {
            for_fleet: output.for_fleet,
            messages: messages.collect(),
        }
    }
}
