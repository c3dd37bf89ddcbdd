//! One member at the gateway: its connection, its channels, their output, and its heartbeats.

use std::collections::{HashMap, VecDeque};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncWriteExt as _, DuplexStream, duplex};
use tokio::sync::{Notify, watch};
use tokio::task::coop::unconstrained;
use tokio::time::Instant;
use uuid::Uuid;

use super::frame::{
    ChannelId, Command, GatewayFrame, HeldChannel, Hello, MemberFrame, MemberInfo, ProcessEnd,
    encode,
};
use super::output::{CommandQueue, EXCEEDS_WINDOW, OutputPosition, ProtocolError};
use super::{HEARTBEAT, WINDOW};
use base::shutdown::lock_or_abort;
use base::types::text::one_line;
use base::types::{AgentName, QueuedLine};

/// How long the gateway keeps a channel of a returning member that no session has claimed yet.
const CLAIM_TIMEOUT: Duration = Duration::from_mins(1);
pub(super) const MAX_CHANNELS: usize = 1024;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemberState {
    Connected,
    /// The connection was lost, and the processes of the member wait for its return.
    Reconnecting,
    /// The member did not return in time, or was removed. Its processes are lost.
    Disconnected,
}

#[derive(Debug, Clone)]
pub struct MemberStatus {
    pub name: AgentName,
    pub state: MemberState,
    pub info: MemberInfo,
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

#[derive(Debug)]
struct OpenChannel {
    commands: CommandQueue,
    position: OutputPosition,
    /// `None` after the end of the output.
    output: Option<DuplexStream>,
    end: watch::Sender<Option<ChannelEnd>>,
    /// The member must be asked for the output on this connection.
    resume_due: bool,
    durable_due: Option<u64>,
}

impl OpenChannel {
    fn finish(&mut self, end: ChannelEnd) {
        self.output = None;
        if self.end.borrow().is_none() {
            self.end.send_replace(Some(end));
        }
    }

    fn push_output(&mut self, bytes: &[u8]) -> Result<(), ProtocolError> {
        let Some(output) = &mut self.output else {
            return Ok(());
        };
        // The pipe has room for more than a window, so the write ends at once. Without a reader it fails, and the
        // output is not needed.
        let write = pin!(unconstrained(output.write_all(bytes)));
        match write.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(_) => Ok(()),
            Poll::Pending => Err(ProtocolError(EXCEEDS_WINDOW)),
        }
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
        Self {
            name,
            key,
            inner: Mutex::new(inner),
            wake: Notify::new(),
            current: watch::Sender::new(0),
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

    pub(super) fn change(&self, state: MemberState, error: Option<String>) -> MemberChange {
        MemberChange {
            name: self.name.clone(),
            key: Arc::clone(&self.key),
            state: Some(state),
            attempt: 0,
            error,
        }
    }

    /// Whether a process with this resume token may connect: it is the same one, or the previous one has not returned in time.
    pub(super) fn accepts(&self, instance: Uuid) -> bool {
        let inner = self.inner();
        inner.instance.is_none_or(|known| known == instance)
            || inner.state.0 == MemberState::Disconnected
    }

    /// Begins a connection. It replaces the previous one. Returns its number.
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
                let reason = "the member no longer has the process".to_owned();
                channel.finish(ChannelEnd::Lost(reason));
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
        let _ = current.wait_for(|current| *current != connection).await;
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

    fn send(&self, id: ChannelId, command: Command, line: impl Into<QueuedLine>) -> bool {
        let mut inner = self.inner();
        let queued = match inner.channels.get_mut(&id) {
            Some(channel) if channel.output.is_some() => channel.commands.push(command, line),
            _ => return false,
        };
        drop(inner);
        self.wake.notify_one();
        queued
    }

    fn acknowledge(&self, id: ChannelId, offset: u64) {
        let mut inner = self.inner();
        let Some(channel) = inner.channels.get_mut(&id) else {
            return;
        };
        channel.position.durable(offset);
        channel.durable_due = channel.durable_due.max(Some(offset));
        drop(inner);
        self.wake.notify_one();
    }

    fn forget(&self, id: ChannelId) {
        let mut inner = self.inner();
        if inner.channels.remove(&id).is_some() {
            let forget = GatewayFrame::Forget { channel: id };
            inner.controls.push_back(forget);
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
        frame: MemberFrame,
        payload: Bytes,
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
                    open.push_output(&new)?;
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
        let mut inner = self.inner();
        let now = Instant::now();
        let Inner {
            unclaimed,
            controls,
            ..
        } = &mut *inner;
        let expired = unclaimed.extract_if(|_, (_, since)| now - *since >= CLAIM_TIMEOUT);
        controls.extend(expired.map(|(channel, _)| GatewayFrame::Forget { channel }));
        encode(&GatewayFrame::Ping { at: clock }, b"")
    }

    pub fn welcome() -> Bytes {
        let heartbeat = u64::try_from(HEARTBEAT.as_millis()).unwrap_or(u64::MAX);
        let welcome = GatewayFrame::Welcome {
            window: WINDOW,
            heartbeat,
        };
        encode(&welcome, b"")
    }
}

impl OpenChannel {
    fn next_frame(&mut self, channel: ChannelId) -> Option<Bytes> {
        // The member must know a channel before it is asked for output.
        if let Some((number, command, line)) = self.commands.next_command() {
            let frame = GatewayFrame::Command {
                channel,
                number,
                command,
            };
            return Some(encode(&frame, &line));
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

pub const REMOVED_TEXT: &str = "an operator removed the member from the fleet";
pub const KEY_ENDED_TEXT: &str =
    "the key of the member has ended, or does not permit its name any more";
/// The maximum number of bytes of an error that a member reports.
const ERROR_BYTES: usize = 512;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberChange {
    pub name: AgentName,
    pub key: Arc<str>,
    /// `None`: the gateway rejected a connection.
    pub state: Option<MemberState>,
    /// The number of failed attempts before a connection, which the member reports.
    pub attempt: u32,
    /// The cause of the state. For a connection, the member reports the cause of its last failed attempt.
    pub error: Option<String>,
}

/// An error that a member reports, bounded and in one line.
pub(super) fn shown_error(error: &str) -> String {
    let end = error.floor_char_boundary(ERROR_BYTES.min(error.len()));
    one_line(&error[..end])
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChannelEnd {
    /// The process has ended, and all its output was received.
    Process(ProcessEnd),
    /// The member did not return, or returned without the process. The text is the reason.
    Lost(String),
}

/// The output of a process that was received and not read.
pub type ChannelOutput = DuplexStream;

/// A process of a member. The drop sends the member a command that stops the process and discards its output.
#[derive(Debug)]
pub struct Channel {
    member: Arc<Member>,
    id: ChannelId,
    end: watch::Receiver<Option<ChannelEnd>>,
    /// The number of commands that the member had received when the channel was opened.
    earlier_commands: u64,
}

impl Channel {
    pub(super) fn open(member: Arc<Member>, id: ChannelId) -> (Self, ChannelOutput) {
        let mut commands = CommandQueue::new(0);
        commands.push(Command::Open, Bytes::new());
        Self::insert(
            member,
            id,
            0,
            commands,
            OutputPosition::new(0, false, WINDOW),
        )
    }

    /// Claims a channel of an earlier gateway process, which has processed its output before `offset`. `None`: the member
    /// does not have it.
    pub(super) fn claim(
        member: Arc<Member>,
        id: ChannelId,
        offset: u64,
    ) -> Option<(Self, ChannelOutput)> {
        let (earlier_commands, _) = member.inner().unclaimed.remove(&id)?;
        let position = OutputPosition::new(offset, true, WINDOW);
        let commands = CommandQueue::new(earlier_commands);
        Some(Self::insert(
            member,
            id,
            earlier_commands,
            commands,
            position,
        ))
    }

    fn insert(
        member: Arc<Member>,
        id: ChannelId,
        earlier_commands: u64,
        commands: CommandQueue,
        position: OutputPosition,
    ) -> (Self, ChannelOutput) {
        let (output, reader) = duplex(usize::try_from(2 * WINDOW).unwrap_or(usize::MAX));
        let (sender, end) = watch::channel(None);
        let channel = OpenChannel {
            commands,
            position,
            output: Some(output),
            end: sender,
            resume_due: true,
            durable_due: None,
        };
        member.inner().channels.insert(id, channel);
        member.wake.notify_one();
        let channel = Self {
            member,
            id,
            end,
            earlier_commands,
        };
        (channel, reader)
    }

    pub fn id(&self) -> ChannelId {
        self.id
    }

    pub fn earlier_commands(&self) -> u64 {
        self.earlier_commands
    }

    /// Queues a line for the process, which receives at most one line with the same `once`. Returns false if the queue is
    /// full or the channel has ended. The line is delivered when the member has received it.
    pub fn send_line(&self, once: Option<String>, line: QueuedLine) -> bool {
        self.member.send(self.id, Command::Line { once }, line)
    }

    /// Asks the member to stop the process gracefully. Its output is still received.
    pub fn close(&self) {
        // A full queue means that the member does not read. The drop of the channel ends the process.
        self.member.send(self.id, Command::Close, Bytes::new());
    }

    /// Acknowledges the output before `offset`: its events are durable.
    pub fn acknowledge(&self, offset: u64) {
        self.member.acknowledge(self.id, offset);
    }

    /// The end of the channel. `None` while it is open.
    pub fn end(&self) -> Option<ChannelEnd> {
        self.end.borrow().clone()
    }

    pub async fn ended(&self) -> ChannelEnd {
        let mut end = self.end.clone();
        let ended = end.wait_for(Option::is_some).await;
        let ended = ended.ok().and_then(|end| end.clone());
        ended.unwrap_or_else(|| ChannelEnd::Lost("the gateway released the process".to_owned()))
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        self.member.forget(self.id);
    }
}
