//! One member at the gateway: its connection, its channels and its heartbeats.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use uuid::Uuid;

use super::change::{MemberChange, PublishedState};
use super::commands::{CommandQueue, NumberedCommand};
use super::frame::{
    ChannelId, Command, GatewayFrame, HeldChannel, Hello, MemberFrame, MemberInfo, encode,
};
use super::output::{OutputPosition, ProtocolError};
use super::received::{ChannelEnd, ChannelOutput, Received};
use super::{HEARTBEAT, WINDOW};
use crate::shutdown::lock_or_abort;
use crate::types::{AgentName, QueuedLine};

/// How long the gateway keeps a channel of a returning member that no session has claimed yet.
const CLAIM_TIMEOUT: Duration = Duration::from_mins(1);
/// The number of channels that a member may report.
pub(super) const MAX_CHANNELS: usize = 1024;

/// The state of the connection of a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemberState {
    Connected,
    /// The connection was lost, and the member may return to its processes.
    Reconnecting,
    /// The member did not return in time. Its processes are lost.
    Disconnected,
}

/// The status of a member, for lists.
#[derive(Debug, Clone)]
pub struct MemberStatus {
    pub name: AgentName,
    pub state: MemberState,
    pub info: MemberInfo,
    /// The name of the key with which the member connected.
    pub key: Arc<str>,
    /// The time since the state began.
    pub since: Duration,
    /// The time since the member last sent a frame to this gateway process.
    pub last_heartbeat: Option<Duration>,
    pub latency: Option<Duration>,
    pub channels: usize,
    /// Whether the member accepts no further processes.
    pub draining: bool,
}

/// A member. Its connection and its channels refer to it.
#[derive(Debug)]
pub struct Member {
    name: AgentName,
    /// The name of the key. No other key can use the name of the member.
    key: Arc<str>,
    inner: Mutex<Inner>,
    /// Wakes the task of the connection: there are frames to send.
    wake: Notify,
    /// The number of the current connection. 0 without one.
    current: watch::Sender<u64>,
}

#[derive(Debug)]
struct Inner {
    /// `None`: the member has not connected to this gateway process.
    instance: Option<Uuid>,
    info: MemberInfo,
    connections: u64,
    state: (MemberState, Instant),
    heard: Option<Instant>,
    latency: Option<Duration>,
    channels: HashMap<ChannelId, OpenChannel>,
    /// Channels of an earlier gateway process: the number of received commands, and when they were reported.
    unclaimed: HashMap<ChannelId, (u64, Instant)>,
    /// Frames that belong to no channel, and channels to forget.
    controls: VecDeque<GatewayFrame>,
    draining: bool,
}

/// The gateway's side of a channel.
#[derive(Debug)]
struct OpenChannel {
    commands: CommandQueue,
    position: OutputPosition,
    /// `None` after the end of the output.
    output: Option<Arc<Received>>,
    end: watch::Sender<Option<ChannelEnd>>,
    /// The member must be asked for the output on this connection.
    resume_due: bool,
    /// An acknowledgement to send.
    durable_due: Option<u64>,
}

impl OpenChannel {
    fn finish(&mut self, end: ChannelEnd) {
        if let Some(output) = self.output.take() {
            output.complete();
        }
        self.end.send_if_modified(|ended| {
            let first = ended.is_none();
            if first {
                *ended = Some(end);
            }
            first
        });
    }
}

impl Member {
    pub(super) fn new(name: AgentName, key: Arc<str>, info: MemberInfo) -> Self {
        let inner = Inner {
            instance: None,
            info,
            connections: 0,
            state: (MemberState::Reconnecting, Instant::now()),
            heard: None,
            latency: None,
            channels: HashMap::new(),
            unclaimed: HashMap::new(),
            controls: VecDeque::new(),
            draining: false,
        };
        let (wake, current) = (Notify::new(), watch::Sender::new(0));
        Self {
            name,
            key,
            inner: Mutex::new(inner),
            wake,
            current,
        }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        lock_or_abort(self.inner.lock())
    }

    pub fn name(&self) -> &AgentName {
        &self.name
    }

    pub(super) fn key(&self) -> &Arc<str> {
        &self.key
    }

    pub fn status(&self) -> MemberStatus {
        let inner = self.inner();
        let now = Instant::now();
        MemberStatus {
            name: self.name.clone(),
            state: inner.state.0,
            info: inner.info.clone(),
            key: Arc::clone(&self.key),
            since: now - inner.state.1,
            last_heartbeat: inner.heard.map(|heard| now - heard),
            latency: inner.latency,
            channels: inner.channels.len(),
            draining: inner.draining,
        }
    }

    pub(super) fn change(&self, state: PublishedState, error: Option<String>) -> MemberChange {
        MemberChange {
            name: self.name.clone(),
            key: Arc::clone(&self.key),
            state,
            attempt: 0,
            error,
        }
    }

    /// Whether a process with this resume token may connect: it is the same one, or the former one has not returned in time.
    pub(super) fn accepts(&self, instance: Uuid) -> bool {
        let inner = self.inner();
        inner.instance.is_none_or(|known| known == instance)
            || inner.state.0 == MemberState::Disconnected
    }

    /// Begins a connection. It replaces the former one. Returns its number.
    pub(super) fn connect(&self, hello: Hello) -> u64 {
        let mut inner = self.inner();
        let now = Instant::now();
        let inner = &mut *inner;
        let resumes = inner.instance == Some(hello.instance);
        if !resumes {
            inner.lose_all("another process of the member has taken its name");
            inner.draining = false;
        }
        inner.instance = Some(hello.instance);
        inner.info = hello.info;
        inner.controls.clear();
        inner.unclaimed.clear();
        let held: HashMap<_, _> = hello
            .channels
            .iter()
            .map(|held| (held.channel, held.received))
            .collect();
        for (id, channel) in &mut inner.channels {
            channel.resume_due = true;
            let received = held.get(id).copied();
            let known = match received {
                None if channel.commands.has_started() => false,
                received => channel.commands.reconnected(received.unwrap_or(0)).is_ok(),
            };
            if !known {
                channel.finish(ChannelEnd::Lost(
                    "the member no longer has the process".to_owned(),
                ));
            }
        }
        for HeldChannel { channel, received } in hello.channels {
            if inner.channels.contains_key(&channel) {
                continue;
            }
            if resumes {
                inner.controls.push_back(GatewayFrame::Forget { channel });
            } else {
                inner.unclaimed.insert(channel, (received, now));
            }
        }
        inner.connections += 1;
        inner.state = (MemberState::Connected, now);
        inner.heard = Some(now);
        self.current.send_replace(inner.connections);
        inner.connections
    }

    /// Notes the end of a connection. Returns whether it was the current one.
    pub(super) fn disconnected(&self, connection: u64) -> bool {
        let mut inner = self.inner();
        if *self.current.borrow() != connection {
            return false;
        }
        inner.state = (MemberState::Reconnecting, Instant::now());
        self.current.send_replace(0);
        true
    }

    /// Gives the processes of a member up that has not returned since `connection`. Returns whether it has not.
    pub(super) fn give_up(&self, connection: u64, reason: &str) -> bool {
        let mut inner = self.inner();
        if *self.current.borrow() != 0 || inner.connections != connection {
            return false;
        }
        inner.state = (MemberState::Disconnected, Instant::now());
        inner.lose_all(reason);
        // Wakes the callers that wait for the member.
        self.current.send_replace(0);
        true
    }

    /// Ends the current connection and loses all channels.
    pub(super) fn remove(&self, reason: &str) {
        let mut inner = self.inner();
        inner.lose_all(reason);
        inner.state = (MemberState::Disconnected, Instant::now());
        self.current.send_replace(0);
    }

    /// Gives the member no further processes until its program is started again.
    pub fn start_drain(&self) {
        self.inner().draining = true;
    }

    /// Waits until this connection is not the current one any more.
    pub async fn replaced(&self, connection: u64) {
        let mut current = self.current.subscribe();
        // The sender is in `self`.
        drop(current.wait_for(|current| *current != connection).await);
    }

    pub(super) fn presence(&self) -> watch::Receiver<u64> {
        self.current.subscribe()
    }

    pub(super) fn is_connected(&self) -> bool {
        *self.current.borrow() != 0
    }

    pub fn state(&self) -> MemberState {
        self.inner().state.0
    }

    pub(super) fn is_draining(&self) -> bool {
        self.inner().draining
    }

    /// The number of commands that an earlier gateway process has sent on a channel that it had. `None`: the member does not
    /// have the channel.
    pub(super) fn take_unclaimed(&self, id: ChannelId) -> Option<u64> {
        self.inner()
            .unclaimed
            .remove(&id)
            .map(|(received, _)| received)
    }

    /// Adds a channel. Returns its output and its end.
    pub(super) fn insert(
        &self,
        id: ChannelId,
        commands: CommandQueue,
        position: OutputPosition,
    ) -> (ChannelOutput, watch::Receiver<Option<ChannelEnd>>) {
        let output = Arc::<Received>::default();
        let reader = ChannelOutput(Arc::clone(&output));
        let (end, ended) = watch::channel(None);
        let channel = OpenChannel {
            commands,
            position,
            output: Some(output),
            end,
            resume_due: true,
            durable_due: None,
        };
        self.inner().channels.insert(id, channel);
        self.wake.notify_one();
        (reader, ended)
    }

    pub(super) fn send(
        &self,
        id: ChannelId,
        command: Command,
        line: impl Into<QueuedLine>,
    ) -> bool {
        let mut inner = self.inner();
        let Some(channel) = inner
            .channels
            .get_mut(&id)
            .filter(|channel| channel.output.is_some())
        else {
            return false;
        };
        let queued = channel.commands.push(command, line);
        drop(inner);
        self.wake.notify_one();
        queued
    }

    pub(super) fn acknowledge(&self, id: ChannelId, offset: u64) {
        let mut inner = self.inner();
        let Some(channel) = inner.channels.get_mut(&id) else {
            return;
        };
        channel.position.durable(offset);
        channel.durable_due = channel.durable_due.max(Some(offset));
        drop(inner);
        self.wake.notify_one();
    }

    pub(super) fn forget(&self, id: ChannelId) {
        let mut inner = self.inner();
        if inner.channels.remove(&id).is_some() {
            inner
                .controls
                .push_back(GatewayFrame::Forget { channel: id });
        }
        drop(inner);
        self.wake.notify_one();
    }

    /// Wakes the task of the connection, for messages that are not frames.
    pub fn wake(&self) {
        self.wake.notify_one();
    }

    /// Waits until there may be frames to send.
    pub async fn woken(&self) {
        self.wake.notified().await;
    }

    /// The next frame for this connection.
    pub fn next_frame(&self, connection: u64) -> Option<Bytes> {
        let mut inner = self.inner();
        if *self.current.borrow() != connection {
            return None;
        }
        if let Some(control) = inner.controls.pop_front() {
            return Some(encode(&control, b""));
        }
        inner
            .channels
            .iter_mut()
            .find_map(|(id, channel)| channel.next_frame(*id))
    }

    /// Handles a frame of this connection. Returns the response to a ping.
    pub fn receive(
        &self,
        connection: u64,
        (frame, payload): (MemberFrame, Bytes),
        clock: u64,
    ) -> Result<Option<Bytes>, ProtocolError> {
        let mut inner = self.inner();
        if *self.current.borrow() != connection {
            return Ok(None);
        }
        inner.heard = Some(Instant::now());
        match frame {
            MemberFrame::Hello(_) => return Err(ProtocolError("it says hello twice")),
            MemberFrame::Ping { at } => return Ok(Some(encode(&GatewayFrame::Pong { at }, b""))),
            MemberFrame::Pong { at } => {
                inner.latency = clock.checked_sub(at).map(Duration::from_millis);
            }
            // The gateway may have forgotten the channel while the frame was on its way.
            MemberFrame::Output { channel, offset } => {
                if let Some(open) = inner.channels.get_mut(&channel) {
                    let new = open.position.receive(offset, payload)?;
                    if let Some(output) = &open.output {
                        output.push(&new);
                    }
                }
            }
            MemberFrame::Ended {
                channel,
                offset,
                end,
            } => {
                if let Some(open) = inner.channels.get_mut(&channel) {
                    open.position.check_end(offset)?;
                    open.finish(ChannelEnd::Process(*end));
                }
            }
            MemberFrame::Received { channel, number } => {
                if let Some(open) = inner.channels.get_mut(&channel) {
                    open.commands.received(number)?;
                }
            }
        }
        Ok(None)
    }

    /// The heartbeat of the gateway. Also forgets the channels that no session has claimed.
    pub fn heartbeat(&self, clock: u64) -> Bytes {
        let (mut inner, now) = (self.inner(), Instant::now());
        let Inner {
            unclaimed,
            controls,
            ..
        } = &mut *inner;
        unclaimed.retain(|channel, (_, since)| {
            let keep = now - *since < CLAIM_TIMEOUT;
            if !keep {
                controls.push_back(GatewayFrame::Forget { channel: *channel });
            }
            keep
        });
        encode(&GatewayFrame::Ping { at: clock }, b"")
    }

    /// The response to `hello`.
    pub fn welcome() -> Bytes {
        let heartbeat = u64::try_from(HEARTBEAT.as_millis()).unwrap_or(u64::MAX);
        encode(
            &GatewayFrame::Welcome {
                window: WINDOW,
                heartbeat,
            },
            b"",
        )
    }
}

impl OpenChannel {
    fn next_frame(&mut self, channel: ChannelId) -> Option<Bytes> {
        // The member must know a channel before it is asked for output.
        if let Some(NumberedCommand {
            number,
            command,
            line,
        }) = self.commands.next_command()
        {
            return Some(encode(
                &GatewayFrame::Command {
                    channel,
                    number,
                    command,
                },
                &line,
            ));
        }
        if std::mem::take(&mut self.resume_due) {
            let offset = self.position.next();
            return Some(encode(&GatewayFrame::Resume { channel, offset }, b""));
        }
        let offset = self.durable_due.take()?;
        Some(encode(&GatewayFrame::Durable { channel, offset }, b""))
    }
}

impl Inner {
    fn lose_all(&mut self, reason: &str) {
        for channel in self.channels.values_mut() {
            channel.finish(ChannelEnd::Lost(reason.to_owned()));
        }
        self.unclaimed.clear();
    }
}
