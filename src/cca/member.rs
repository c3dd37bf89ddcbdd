//! A member and its channels.

use std::collections::{HashMap, VecDeque};

use bytes::Bytes;
use serde::Deserialize;
use uuid::Uuid;

use super::message::{self, FromMember, Heartbeat, Status, ToMember};
use super::process::Process;
use crate::fleet::{
    self, ChannelId, Command, CommandReceiver, GatewayFrame, HeldChannel, Hello, MemberFrame,
    MemberInfo, OutputBuffer, OutputPart, PROTOCOL, ProcessEnd, ProtocolError, WINDOW,
};
use crate::types::{AgentName, QueuedLine, random_uuid};

/// The number of messages of clients that may wait for the connection.
const MAX_QUEUED: usize = 64;

/// The peer violated the protocol.
#[derive(Debug, thiserror::Error)]
pub enum CcaError {
    #[error("a message is not valid JSON of its type: {0}")]
    Message(#[from] serde_json::Error),
    #[error(transparent)]
    Fleet(#[from] ProtocolError),
}

/// The results of a message or a frame.
#[derive(Debug, Default)]
pub struct Output {
    /// Frames of the member for the fleet.
    pub for_fleet: Vec<(MemberFrame, Bytes)>,
    /// Messages for the member.
    pub messages: Vec<String>,
}

/// A member, which outlives its connections.
#[derive(Debug)]
pub struct CcaMember {
    name: AgentName,
    instance: Uuid,
    channels: HashMap<ChannelId, LocalChannel>,
    next_request: u64,
    /// The number of the request for the tasks of the member, after a reconnect.
    status_request: Option<u64>,
    /// Messages of clients that belong to no process.
    queued: VecDeque<QueuedLine>,
}

#[derive(Debug)]
struct LocalChannel {
    process: Process,
    buffer: OutputBuffer,
    commands: CommandReceiver,
}

/// The answer of a member to `get_status`. Without `tasks`, the member is assumed to have all of them.
#[derive(Deserialize)]
struct MemberStatus {
    #[serde(default)]
    tasks: Option<Vec<String>>,
}

impl CcaMember {
    pub fn new(name: AgentName) -> Self {
        Self {
            name,
            instance: random_uuid(),
            channels: HashMap::new(),
            next_request: 1,
            status_request: None,
            queued: VecDeque::new(),
        }
    }

    /// Queues a message of a client. Returns false if the queue is full.
    pub(super) fn queue(&mut self, message: QueuedLine) -> bool {
        let has_room = self.queued.len() < MAX_QUEUED;
        if has_room {
            self.queued.push_back(message);
        }
        has_room
    }

    /// The next message of a client.
    pub fn next_queued(&mut self) -> Option<QueuedLine> {
        self.queued.pop_front()
    }

    /// Discards the messages of clients, because the connection has ended.
    pub(super) fn discard_queue(&mut self) {
        self.queued.clear();
    }

    /// Begins a connection. Returns the frame for the fleet, and the first messages for the member.
    pub fn connect(&mut self, info: MemberInfo) -> (Hello, Vec<String>) {
        for channel in self.channels.values_mut() {
            channel.buffer.pause();
        }
        let held = self.channels.iter();
        let channels = held
            .map(|(channel, local)| HeldChannel {
                channel: *channel,
                received: local.commands.last(),
            })
            .collect();
        let (name, instance) = (self.name.clone(), self.instance);
        let hello = Hello {
            protocol: PROTOCOL,
            name,
            instance,
            info,
            channels,
            attempt: 0,
            error: None,
        };
        self.status_request = None;
        let mut messages = Vec::new();
        if self
            .channels
            .values()
            .any(|local| local.process.tasks().next().is_some())
        {
            let params =
                serde_json::value::RawValue::from_string("{}".to_owned()).expect("it is JSON");
            messages.extend(message::request("get_status", self.next_request, &params));
            self.status_request = Some(self.next_request);
            self.next_request += 1;
        }
        (hello, messages)
    }

    /// Whether messages of the member may be read. False while unacknowledged output fills a window.
    pub fn has_room(&self) -> bool {
        self.channels.values().all(|local| local.buffer.has_room())
    }

    /// Handles a frame of the fleet.
    pub fn frame(&mut self, (frame, payload): (GatewayFrame, Bytes)) -> Result<Output, CcaError> {
        let mut output = Output::default();
        match frame {
            GatewayFrame::Welcome { .. } | GatewayFrame::Pong { .. } => {}
            GatewayFrame::Ping { at } => {
                output.messages.push(
                    ToMember::Heartbeat {
                        id: Some(at),
                        reply_to: None,
                    }
                    .text(),
                );
            }
            GatewayFrame::Resume { channel, offset } => {
                if let Some(local) = self.channels.get_mut(&channel) {
                    local.buffer.resume(offset)?;
                }
            }
            GatewayFrame::Durable { channel, offset } => {
                if let Some(local) = self.channels.get_mut(&channel) {
                    local.buffer.durable(offset)?;
                }
            }
            GatewayFrame::Forget { channel } => {
                if let Some(mut local) = self.channels.remove(&channel) {
                    local.process.cancel_all();
                    output.messages.extend(local.process.take_messages());
                }
            }
            GatewayFrame::Command {
                channel,
                number,
                command,
            } => {
                self.command(channel, number, &command, &payload)?;
                output
                    .for_fleet
                    .push((MemberFrame::Received { channel, number }, Bytes::new()));
            }
        }
        self.collect(&mut output);
        Ok(output)
    }

    fn command(
        &mut self,
        channel: ChannelId,
        number: u64,
        command: &Command,
        line: &[u8],
    ) -> Result<(), ProtocolError> {
        if *command == Command::Open {
            self.channels
                .entry(channel)
                .or_insert_with(|| LocalChannel {
                    process: Process::default(),
                    buffer: OutputBuffer::new(WINDOW),
                    commands: CommandReceiver::default(),
                });
        }
        let Some(local) = self.channels.get_mut(&channel) else {
            return Ok(());
        };
        if !local.commands.receive(number, command)? {
            return Ok(());
        }
        match command {
            Command::Open => {}
            Command::Line { .. } => local.process.line(line, &mut self.next_request),
            Command::Close => {
                local.process.cancel_all();
                local.buffer.push(local.process.take_lines());
                local.buffer.ended(ProcessEnd {
                    exit_code: Some(0),
                    ..ProcessEnd::default()
                });
            }
        }
        Ok(())
    }

    /// Handles a message of the member. A task, a request or a type that is unknown has no effect.
    pub fn message(&mut self, text: &str) -> Result<Output, CcaError> {
        let mut output = Output::default();
        let mut processes = self.channels.values_mut().map(|local| &mut local.process);
        match message::parse(text)? {
            FromMember::Heartbeat(Heartbeat { id, reply_to }) => {
                if let Some(at) = reply_to {
                    output
                        .for_fleet
                        .push((MemberFrame::Pong { at }, Bytes::new()));
                }
                if let Some(id) = id {
                    output.messages.push(
                        ToMember::Heartbeat {
                            id: None,
                            reply_to: Some(&id),
                        }
                        .text(),
                    );
                }
            }
            FromMember::Progress(progress) => {
                if !processes.any(|process| process.progress(&progress.task_id, &progress.output)) {
                    tracing::debug!(member = %self.name, "a member sent output of an unknown task");
                }
            }
            FromMember::Result(result) => {
                if !processes.any(|process| process.finished(&result)) {
                    tracing::debug!(member = %self.name, "a member sent the result of an unknown task");
                }
            }
            FromMember::Response(response) if self.status_request == Some(response.reply_to) => {
                self.status_request = None;
                let status = response
                    .result
                    .map(|result| serde_json::from_str::<MemberStatus>(result.get()));
                if let Some(MemberStatus { tasks: Some(tasks) }) = status.transpose()? {
                    let is_lost = |id: &str| !tasks.iter().any(|task| task == id);
                    processes.for_each(|process| process.lose_tasks(is_lost));
                }
            }
            FromMember::Response(response) => {
                if !processes.any(|process| process.answered(&response)) {
                    tracing::debug!(member = %self.name, "a member answered an unknown request");
                }
            }
            FromMember::GetStatus(request) => {
                let tasks = processes
                    .flat_map(|process| process.tasks().map(str::to_owned).collect::<Vec<_>>());
                let status = Status {
                    name: self.name.to_string(),
                    tasks: tasks.collect(),
                };
                output.messages.push(
                    ToMember::Response {
                        reply_to: &request.id,
                        result: &status,
                    }
                    .text(),
                );
            }
            FromMember::Ignored(kind) => {
                tracing::debug!(member = %self.name, kind, "a message of a member has no effect");
            }
        }
        self.collect(&mut output);
        Ok(output)
    }

    /// Collects the messages and the output of all processes.
    fn collect(&mut self, output: &mut Output) {
        for (channel, local) in &mut self.channels {
            let channel = *channel;
            output.messages.extend(local.process.take_messages());
            local.buffer.push(local.process.take_lines());
            while let Some(part) = local.buffer.next_part() {
                output.for_fleet.push(match part {
                    OutputPart::Bytes { offset, bytes } => {
                        (MemberFrame::Output { channel, offset }, bytes)
                    }
                    OutputPart::End { offset, end } => (
                        MemberFrame::Ended {
                            channel,
                            offset,
                            end: Box::new(end),
                        },
                        Bytes::new(),
                    ),
                });
            }
        }
    }

    /// Decodes a frame of the gateway.
    pub fn decode(frame: Bytes) -> Result<(GatewayFrame, Bytes), fleet::FrameError> {
        fleet::decode(frame)
    }
}
