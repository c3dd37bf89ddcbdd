//! Both sides of a channel with a network between them that loses frames at every point.

use bytes::Bytes;
use proptest::prelude::*;

use super::frame::{ChannelId, Command, MemberFrame, OUTPUT_BYTES, ProcessEnd};
use super::output::{CommandQueue, CommandReceiver, OutputBuffer, OutputPosition, ProtocolError};
use base::types::QueuedLine;

const WINDOW: u64 = 4096;
const CHANNEL: ChannelId = ChannelId::nil();

/// One step of a random history.
#[derive(Debug, Clone, Copy)]
enum Step {
    /// The process writes so many bytes.
    Write(usize),
    /// The gateway sends a line.
    Line,
    /// One frame of each direction passes.
    Pass,
    /// The gateway commits what it has received, and acknowledges it.
    Commit,
    /// The connection is cut, and all frames on their way are lost.
    Cut,
    /// The gateway is killed and starts again with its committed position.
    Kill,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (1..3000_usize).prop_map(Step::Write),
        2 => Just(Step::Line),
        8 => Just(Step::Pass),
        3 => Just(Step::Commit),
        1 => Just(Step::Cut),
        1 => Just(Step::Kill),
    ]
}

/// A member, a gateway, and what each has received.
struct World {
    buffer: OutputBuffer,
    position: OutputPosition,
    /// The output that the gateway has in its log.
    log: Vec<u8>,
    /// The output that the gateway has received after the log.
    volatile: Vec<u8>,
    written: Vec<u8>,
    queue: CommandQueue,
    receiver: CommandReceiver,
    /// The lines that the agent has received.
    lines: Vec<u64>,
    /// The number of lines that the gateway has decided to send, which its log has.
    decided: u64,
}

impl World {
    fn new() -> Self {
        let mut buffer = OutputBuffer::new(WINDOW);
        buffer.resume(0).unwrap();
        Self {
            buffer,
            position: OutputPosition::new(0, false, WINDOW),
            log: Vec::new(),
            volatile: Vec::new(),
            written: Vec::new(),
            queue: CommandQueue::new(0),
            receiver: CommandReceiver::default(),
            lines: Vec::new(),
            decided: 0,
        }
    }

    fn line(number: u64) -> (Command, Bytes) {
        (
            Command::Line {
                once: Some(format!("line/{number}")),
            },
            Bytes::from(number.to_string()),
        )
    }

    fn apply(&mut self, step: Step) {
        match step {
            Step::Write(bytes) if self.buffer.has_room() => {
                let from = self.written.len();
                self.written.extend(
                    (from..from + bytes).map(|at| u8::try_from(at % 251).unwrap_or_default()),
                );
                self.buffer
                    .push(Bytes::copy_from_slice(&self.written[from..]));
            }
            Step::Write(_) => {}
            Step::Line => {
                self.decided += 1;
                let (command, line) = Self::line(self.decided);
                assert!(self.queue.push(command, line));
            }
            Step::Pass => {
                if let Some((MemberFrame::Output { offset, .. }, bytes)) =
                    self.buffer.next_frame(CHANNEL)
                {
                    let new = self.position.receive(offset, bytes).unwrap();
                    self.volatile.extend_from_slice(&new);
                }
                if let Some((number, command, line)) = self.queue.next_command() {
                    if self.receiver.receive(number, &command).unwrap() {
                        self.lines
                            .push(std::str::from_utf8(&line).unwrap().parse().unwrap());
                    }
                    self.queue.received(self.receiver.last()).unwrap();
                }
            }
            Step::Commit => {
                self.log.append(&mut self.volatile);
                let durable = self.log.len() as u64;
                self.position.durable(durable);
                self.buffer.durable(durable).unwrap();
            }
            Step::Cut => {
                self.buffer.pause();
                self.buffer.resume(self.position.next()).unwrap();
                self.queue.reconnected(self.receiver.last()).unwrap();
            }
            Step::Kill => {
                self.volatile.clear();
                self.position = OutputPosition::new(self.log.len() as u64, true, WINDOW);
                self.buffer.pause();
                self.buffer.resume(self.position.next()).unwrap();
                // The gateway does not know which lines have arrived, so it sends all again.
                self.queue = CommandQueue::new(self.receiver.last());
                for number in 1..=self.decided {
                    let (command, line) = Self::line(number);
                    assert!(self.queue.push(command, line));
                }
            }
        }
    }
}

proptest! {
    #[test]
    fn every_byte_and_line_arrives_once_in_order_across_cuts_and_kills(
        steps in proptest::collection::vec(step(), 1..200),
    ) {
        let mut world = World::new();
        for step in steps {
            world.apply(step);
            let received = world.log.len() + world.volatile.len();
            prop_assert_eq!(&world.written[..world.log.len()], &world.log[..]);
            prop_assert_eq!(&world.written[world.log.len()..received], &world.volatile[..]);
        }
        for _ in 0..2000 {
            world.apply(Step::Pass);
            world.apply(Step::Commit);
        }
        prop_assert_eq!(&world.log, &world.written);
        let all: Vec<u64> = (1..=world.decided).collect();
        prop_assert_eq!(&world.lines, &all);
    }
}

#[test]
fn process_is_not_read_while_the_window_is_full() {
    let mut buffer = OutputBuffer::new(10);
    buffer.resume(0).unwrap();
    buffer.push(Bytes::from_static(b"123456789"));
    assert!(buffer.has_room());
    buffer.push(Bytes::from_static(b"0123"));
    assert!(!buffer.has_room());
    while buffer.next_frame(CHANNEL).is_some() {}
    buffer.durable(4).unwrap();
    assert!(buffer.has_room(), "9 bytes are unacknowledged");
}

#[test]
fn end_follows_the_output_and_is_sent_again_after_a_cut() {
    let mut buffer = OutputBuffer::new(10);
    buffer.push(Bytes::from_static(b"out"));
    buffer.ended(ProcessEnd::default());
    assert_eq!(
        buffer.next_frame(CHANNEL),
        None,
        "the gateway has not asked yet"
    );
    for _ in 0..2 {
        buffer.resume(1).unwrap();
        assert_eq!(
            buffer.next_frame(CHANNEL),
            Some((
                MemberFrame::Output {
                    channel: CHANNEL,
                    offset: 1
                },
                Bytes::from_static(b"ut")
            ))
        );
        assert_eq!(
            buffer.next_frame(CHANNEL),
            Some((
                MemberFrame::Ended {
                    channel: CHANNEL,
                    offset: 3,
                    end: Box::default()
                },
                Bytes::new()
            ))
        );
        assert_eq!(buffer.next_frame(CHANNEL), None);
    }
}

#[test]
fn violations_of_the_protocol_are_detected() {
    let mut buffer = OutputBuffer::new(10);
    buffer.push(Bytes::from_static(b"out"));
    assert!(buffer.resume(4).is_err());
    buffer.resume(0).unwrap();
    assert!(buffer.durable(1).is_err(), "nothing was sent");

    let mut position = OutputPosition::new(0, false, 10);
    assert_eq!(
        position.receive(1, Bytes::from_static(b"x")),
        Err(ProtocolError("output is missing"))
    );
    let flood = Bytes::from(vec![0; 3 * OUTPUT_BYTES]);
    assert!(position.receive(0, flood).is_err());
    let mut position = OutputPosition::new(5, true, 10);
    assert_eq!(
        position.receive(3, Bytes::from_static(b"abcd")).unwrap(),
        "cd",
        "two bytes are known"
    );
    assert!(
        position.receive(8, Bytes::new()).is_err(),
        "only the first part may skip"
    );
    assert!(position.check_end(7).is_ok() && position.check_end(8).is_err());

    let mut queue = CommandQueue::new(3);
    assert!(
        queue.received(4).is_err()
            && queue.reconnected(2).is_err()
            && queue.reconnected(4).is_err()
    );
    let mut receiver = CommandReceiver::default();
    assert!(receiver.receive(2, &Command::Open).is_err());
    assert_eq!(receiver.receive(1, &Command::Open), Ok(true));
    assert_eq!(receiver.receive(1, &Command::Open), Ok(false));
}

#[test]
fn queue_of_commands_is_bounded() {
    let mut queue = CommandQueue::new(0);
    let accepted = (0..5000)
        .filter(|_| queue.push(Command::Close, Bytes::new()))
        .count();
    assert_eq!(accepted, 1024);
    let mut queue = CommandQueue::new(0);
    let large = Bytes::from(vec![0; 40 << 20]);
    assert!(queue.push(Command::Line { once: None }, large.clone()));
    assert!(!queue.push(Command::Line { once: None }, large));
}

#[tokio::test]
async fn line_is_delivered_when_the_member_has_received_it() {
    let mut queue = CommandQueue::new(0);
    let (line, mut delivered) = QueuedLine::reported(Bytes::from_static(b"x\n"));
    assert!(queue.push(Command::Line { once: None }, line));
    assert_eq!(queue.next_command().expect("a command").2, "x\n");
    delivered.try_recv().unwrap_err();
    queue.received(1).unwrap();
    delivered.await.unwrap();
    let (lost, delivered) = QueuedLine::reported(Bytes::from_static(b"y\n"));
    assert!(queue.push(Command::Line { once: None }, lost));
    drop(queue);
    delivered.await.unwrap_err();
}
