//! The connection to the gateway with its reconnects, and the channels.

use std::collections::HashMap;
use std::time::Duration;

use bytes::Bytes;
use futures_util::SinkExt as _;
use http::header::AUTHORIZATION;
use http::{HeaderMap, StatusCode};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};
use tokio_stream::StreamExt as _;
use tokio_tungstenite::tungstenite::Message;
use uuid::Uuid;

use super::Options;
use super::process::{ProcessCommand, ProcessEvent, ProcessHandle};
use base::types::random_uuid;
use base::types::text::strip_controls;
use outgoing::{Backoff, WebSocket, WebSocketError, open_websocket};
use wire::fleet::{
    self, ChannelId, Command, CommandReceiver, GATEWAY_FRAME_BYTES, GatewayFrame, HEARTBEAT,
    HeldChannel, Hello, MemberFrame, OutputBuffer, PROTOCOL, REMOVED, SILENCE, WINDOW,
};

const OPEN_TIMEOUT: Duration = Duration::from_secs(20);
const SEND_TIMEOUT: Duration = Duration::from_secs(30);
const END_TIMEOUT: Duration = Duration::from_secs(8);
const QUEUED_EVENTS: usize = 64;

#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    #[error(
        "the gateway rejects this member ({0}): check the URL, and the key in ACP_GATEWAY_KEY or --key-file"
    )]
    Denied(String),
    #[error("an operator removed this member from the fleet of the gateway")]
    Removed,
    #[error("gave up after {attempts} failed attempts; the last one failed: {last}")]
    GaveUp { attempts: u32, last: String },
}

enum End {
    /// Another attempt fails too.
    Denied(String),
    Removed,
    Failed(String),
    /// A signal ends this program.
    Stopped,
}

/// One process and its unacknowledged output.
struct LocalChannel {
    process: ProcessHandle,
    buffer: OutputBuffer,
    is_paused: bool,
    commands: CommandReceiver,
    received_due: bool,
}

struct Driver {
    options: Options,
    instance: Uuid,
    /// The number of the attempt to connect. 0: the first one of this program.
    attempt: u32,
    /// Why the last connection ended, or the last attempt failed.
    last_error: Option<String>,
    channels: HashMap<ChannelId, LocalChannel>,
    events: mpsc::Receiver<(ChannelId, ProcessEvent)>,
    event_sender: mpsc::Sender<(ChannelId, ProcessEvent)>,
    began: Instant,
}

/// Runs the member until `stop` resolves. Its processes end with it.
pub async fn run(options: Options, stop: impl Future<Output = ()>) -> Result<(), ConnectError> {
    let shutdown = options.shutdown.clone();
    let (event_sender, events) = mpsc::channel(QUEUED_EVENTS);
    let mut driver = Driver {
        options,
        instance: random_uuid(),
        attempt: 0,
        last_error: None,
        channels: HashMap::new(),
        events,
        event_sender,
        began: Instant::now(),
    };
    let ended = Box::pin(driver.run(std::pin::pin!(stop))).await;
    shutdown.start_drain();
    drop(driver);
    if !shutdown.wait_for_tasks(END_TIMEOUT).await {
        tracing::warn!("some processes of the agent did not end in time");
    }
    ended
}

impl Driver {
    async fn run(
        &mut self,
        mut stop: std::pin::Pin<&mut impl Future<Output = ()>>,
    ) -> Result<(), ConnectError> {
        let mut backoff = Backoff::default();
        loop {
            let state = match self.attempt {
                0 => "connecting",
                _ => "reconnecting",
            };
            tracing::info!(state, attempt = self.attempt, name = %self.options.name, "connecting to the gateway");
            let mut opened = false;
            let end = match Box::pin(self.connection(stop.as_mut(), &mut opened)).await {
                Ok(never) => match never {},
                Err(end) => end,
            };
            if opened {
                // Only an accepted connection is progress. A rejection keeps the delay.
                backoff.reset();
                self.attempt = 0;
            }
            let last = match end {
                End::Stopped => {
                    tracing::info!(state = "disconnected", "the member ends");
                    return Ok(());
                }
                End::Denied(reason) => {
                    tracing::error!(state = "failed", reason, "the gateway rejects the member");
                    return Err(ConnectError::Denied(reason));
                }
                End::Removed => {
                    tracing::error!(state = "failed", "an operator removed the member");
                    return Err(ConnectError::Removed);
                }
                End::Failed(reason) => reason,
            };
            self.attempt = self.attempt.saturating_add(1);
            let attempt = self.attempt;
            let max_attempts = self.options.max_attempts;
            if max_attempts.is_some_and(|max| attempt >= max.get()) {
                tracing::error!(state = "failed", attempt, error = last, "gave up");
                let attempts = attempt;
                return Err(ConnectError::GaveUp { attempts, last });
            }
            let delay = backoff.next_delay();
            let state = "reconnecting";
            tracing::warn!(
                state,
                attempt,
                error = last,
                ?delay,
                "no connection to the gateway"
            );
            self.last_error = Some(last);
            let slept = tokio::time::sleep(delay);
            if self.handling_events(stop.as_mut(), slept).await.is_none() {
                tracing::info!(state = "disconnected", "the member ends");
                return Ok(());
            }
        }
    }

    /// Handles the events of processes until `future` completes. `None`: a signal ends this program.
    async fn handling_events<T>(
        &mut self,
        mut stop: std::pin::Pin<&mut impl Future<Output = ()>>,
        future: impl Future<Output = T>,
    ) -> Option<T> {
        let mut future = std::pin::pin!(future);
        loop {
            tokio::select! {
                () = stop.as_mut() => return None,
                output = future.as_mut() => return Some(output),
                Some((channel, event)) = self.events.recv() => self.handle_event(channel, event),
            }
        }
    }

    fn clock(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// One connection. Sets `opened` when the gateway has accepted the member.
    async fn connection(
        &mut self,
        mut stop: std::pin::Pin<&mut impl Future<Output = ()>>,
        opened: &mut bool,
    ) -> Result<std::convert::Infallible, End> {
        for channel in self.channels.values_mut() {
            channel.buffer.pause();
        }
        let client = self.options.client.clone();
        let url = self.options.url.clone();
        let mut headers = HeaderMap::new();
        headers.insert(AUTHORIZATION, self.options.authorization.clone());
        let open = Box::pin(async move {
            let opened = open_websocket(&client, &url, headers, GATEWAY_FRAME_BYTES);
            timeout(OPEN_TIMEOUT, opened).await
        });
        let socket = self.handling_events(stop.as_mut(), open).await;
        let socket = socket.ok_or(End::Stopped)?;
        let socket = socket.map_err(|_| End::Failed("no connection in time".to_owned()))?;
        let (mut socket, _) = socket.map_err(|error| match error {
            WebSocketError::Status { status, .. }
                if matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) =>
            {
                End::Denied(status.to_string())
            }
            error => End::Failed(error.to_string()),
        })?;
        send(&mut socket, self.hello()).await?;
        let mut heartbeat = tokio::time::interval(HEARTBEAT);
        let mut heard = Instant::now();
        loop {
            while let Some(frame) = self.next_frame() {
                send(&mut socket, frame).await?;
            }
            tokio::select! {
                () = stop.as_mut() => {
                    let _ = timeout(Duration::from_secs(1), socket.close(None)).await;
                    return Err(End::Stopped);
                }
                Some((channel, event)) = self.events.recv() => self.handle_event(channel, event),
                message = socket.next() => {
                    heard = Instant::now();
                    let Some(bytes) = received(message)? else { continue };
                    let (frame, payload) = fleet::decode::<GatewayFrame>(bytes).map_err(|error| failed(&error))?;
                    if matches!(frame, GatewayFrame::Welcome { .. }) {
                        tracing::info!(state = "connected", attempt = self.attempt, name = %self.options.name, "the gateway accepted the member");
                        *opened = true;
                    }
                    if let Some(response) = self.receive(frame, payload).map_err(|error| failed(&error))? {
                        send(&mut socket, response).await?;
                    }
                }
                _ = heartbeat.tick() => {
                    if heard.elapsed() > SILENCE || (!*opened && heard.elapsed() > OPEN_TIMEOUT) {
                        return Err(End::Failed("the gateway sent nothing in time".to_owned()));
                    }
                    let ping = fleet::encode(&MemberFrame::Ping { at: self.clock() }, b"");
                    send(&mut socket, ping).await?;
                }
            }
        }
    }

    fn hello(&self) -> Bytes {
        let held = |(channel, local): (&ChannelId, &LocalChannel)| HeldChannel {
            channel: *channel,
            received: local.commands.last(),
        };
        let hello = Hello {
            protocol: PROTOCOL,
            name: self.options.name.clone(),
            instance: self.instance,
            info: self.options.info.clone(),
            channels: self.channels.iter().map(held).collect(),
            attempt: self.attempt,
            error: self.last_error.clone(),
        };
        fleet::encode(&MemberFrame::Hello(Box::new(hello)), b"")
    }

    fn next_frame(&mut self) -> Option<Bytes> {
        self.channels.iter_mut().find_map(|(channel, local)| {
            let channel = *channel;
            if std::mem::take(&mut local.received_due) {
                let number = local.commands.last();
                let received = MemberFrame::Received { channel, number };
                return Some(fleet::encode(&received, b""));
            }
            let (frame, payload) = local.buffer.next_frame(channel)?;
            Some(fleet::encode(&frame, &payload))
        })
    }

    fn handle_event(&mut self, channel: ChannelId, event: ProcessEvent) {
        let Some(local) = self.channels.get_mut(&channel) else {
            return;
        };
        match event {
            ProcessEvent::Output(block) => {
                local.buffer.push(block);
                local.is_paused = true;
                local.permit_read();
                if local.is_paused {
                    tracing::debug!(%channel, "the window is full; not reading the agent");
                }
            }
            ProcessEvent::Ended(end) => {
                tracing::info!(%channel, exit_code = end.exit_code, signal = end.signal, "a process of the agent ended");
                local.buffer.ended(end);
            }
        }
    }

    /// Handles a frame. Returns the response to a ping.
    fn receive(
        &mut self,
        frame: GatewayFrame,
        payload: Bytes,
    ) -> Result<Option<Bytes>, fleet::ProtocolError> {
        match frame {
            GatewayFrame::Welcome { .. } => {}
            GatewayFrame::Ping { at } => {
                return Ok(Some(fleet::encode(&MemberFrame::Pong { at }, b"")));
            }
            GatewayFrame::Pong { at } => {
                tracing::debug!(latency = self.clock().saturating_sub(at), "heartbeat");
            }
            GatewayFrame::Resume { channel, offset } => {
                if let Some(local) = self.channels.get_mut(&channel) {
                    local.buffer.resume(offset)?;
                }
            }
            GatewayFrame::Durable { channel, offset } => {
                if let Some(local) = self.channels.get_mut(&channel) {
                    local.buffer.durable(offset)?;
                    local.permit_read();
                }
            }
            GatewayFrame::Forget { channel } => {
                self.channels.remove(&channel);
            }
            GatewayFrame::Command {
                channel,
                number,
                command,
            } => {
                self.command(channel, number, &command, payload)?;
            }
        }
        Ok(None)
    }

    fn command(
        &mut self,
        channel: ChannelId,
        number: u64,
        command: &Command,
        line: Bytes,
    ) -> Result<(), fleet::ProtocolError> {
        if *command == Command::Open && !self.channels.contains_key(&channel) {
            let events = self.event_sender.clone();
            let options = &self.options;
            let process = ProcessHandle::start(&options.agent, channel, events, &options.shutdown);
            let local = LocalChannel {
                process,
                buffer: OutputBuffer::new(WINDOW),
                is_paused: false,
                commands: CommandReceiver::default(),
                received_due: false,
            };
            self.channels.insert(channel, local);
        }
        // The gateway may have sent the command before it learned that the channel is unknown here.
        let Some(local) = self.channels.get_mut(&channel) else {
            return Ok(());
        };
        local.received_due = true;
        if !local.commands.receive(number, command)? {
            return Ok(());
        }
        let accepted = match command {
            Command::Open => true,
            Command::Line { .. } => local.process.send(ProcessCommand::Line(line)),
            Command::Close => local.process.send(ProcessCommand::Close),
        };
        if !accepted {
            // The process has ended, which its own event reports, or it does not read.
            tracing::debug!(%channel, "a command did not reach the process");
        }
        Ok(())
    }
}

impl LocalChannel {
    fn permit_read(&mut self) {
        if self.is_paused && self.buffer.has_room() {
            self.is_paused = false;
            self.process.permit_read();
        }
    }
}

/// A signal ends this program.
fn failed(error: &impl ToString) -> End {
    End::Failed(error.to_string())
}

/// The bytes of a frame. `None` for other messages.
fn received(
    message: Option<Result<Message, tokio_tungstenite::tungstenite::Error>>,
) -> Result<Option<Bytes>, End> {
    match message {
        Some(Ok(Message::Binary(bytes))) => Ok(Some(bytes)),
        Some(Ok(Message::Close(Some(frame)))) if u16::from(frame.code) == REMOVED => {
            Err(End::Removed)
        }
        Some(Ok(Message::Close(frame))) => {
            let reason = frame.map(|frame| strip_controls(&frame.reason).to_string());
            let reason = reason.unwrap_or_else(|| "the gateway closed the connection".to_owned());
            Err(End::Failed(reason))
        }
        Some(Ok(_)) => Ok(None),
        Some(Err(error)) => Err(failed(&error)),
        None => Err(failed(&"the gateway closed the connection")),
    }
}

async fn send(socket: &mut WebSocket, frame: Bytes) -> Result<(), End> {
    match timeout(SEND_TIMEOUT, socket.send(Message::Binary(frame))).await {
        Ok(sent) => sent.map_err(|error| failed(&error)),
        Err(_) => Err(failed(&"the gateway does not read")),
    }
}
