//! A session as one connection follows it, and the messages of a stream that are not in the log.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use bytes::Bytes;
use tokio::sync::{RwLock, RwLockWriteGuard, watch};
use tokio_util::sync::CancellationToken;

use super::client::{Participant, Role};
use base::shutdown::lock_or_abort;
use base::types::RequestId;
use sessions::session::SessionHandle;

/// The maximum number of answered requests that are remembered.
const MAX_ANSWERED: usize = 256;

/// The state of a session on a connection. It exists before the session is attached, because clients open the stream of a
/// session before they load it.
#[derive(Debug)]
pub(super) struct SessionView {
    attached: watch::Sender<Option<Arc<Attached>>>,
    pub(super) responses: Outbox,
    /// The position after the last delivered message, with the attachment to which it belongs.
    delivered: Mutex<Option<(Arc<Attached>, Start)>>,
    answered: Mutex<VecDeque<RequestId>>,
    pub(super) streams: AtomicUsize,
    participant: Mutex<Participant>,
    /// Deliveries acquire the read lock before each event. A change of the participant acquires the write lock.
    gate: RwLock<()>,
    /// The client has detached from the session.
    ended: CancellationToken,
    /// A WebSocket delivers every session of its connection.
    is_on_socket: bool,
}

#[derive(Debug)]
pub(super) struct Attached {
    pub(super) session: SessionHandle,
    pub(super) start: Start,
    /// The last event of the history that `session/load` replays, otherwise 0.
    pub(super) history: u64,
    /// Responses to prompts are delivered if their event is after this one, also if the event is in the history.
    pub(super) responses_after: u64,
    pub(super) number: u64,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Start {
    /// The messages follow this event of the log.
    pub(super) after: u64,
    /// The number of messages of the next event that the client already has.
    pub(super) skip: usize,
}

impl SessionView {
    pub(super) fn new(is_on_socket: bool) -> Self {
        Self {
            attached: watch::Sender::new(None),
            responses: Outbox::default(),
            delivered: Mutex::default(),
            answered: Mutex::default(),
            streams: AtomicUsize::new(0),
            participant: Mutex::default(),
            gate: RwLock::default(),
            ended: CancellationToken::new(),
            is_on_socket,
        }
    }

    /// Begins to deliver the session from `start`. Open streams restart there.
    pub(super) fn attach(&self, attached: Attached) {
        self.attached.send_replace(Some(Arc::new(attached)));
    }

    pub(super) fn participant(&self) -> Participant {
        lock_or_abort(self.participant.lock()).clone()
    }

    pub(super) fn role(&self) -> Role {
        lock_or_abort(self.participant.lock()).role
    }

    /// The role in which the client gets the messages of an event. Waits for the end of a change of the participant.
    pub(super) async fn role_at(&self, event: u64) -> Role {
        let _open = self.gate.read().await;
        lock_or_abort(self.participant.lock()).role_at(event)
    }

    /// Stops the deliveries before their next event until the guard is dropped. A snapshot that is taken meanwhile contains
    /// every event of which messages were delivered before.
    pub(super) async fn stop_deliveries(&self) -> RwLockWriteGuard<'_, ()> {
        self.gate.write().await
    }

    pub(super) fn set_participant(&self, participant: Participant) {
        *lock_or_abort(self.participant.lock()) = participant;
    }

    pub(super) fn end(&self) {
        self.ended.cancel();
    }

    pub(super) async fn wait_ended(&self) {
        self.ended.cancelled().await;
    }

    pub(super) fn next_number(&self) -> u64 {
        let attached = self.attached.borrow();
        attached.as_ref().map_or(1, |attached| attached.number + 1)
    }

    /// The last event whose messages have all been delivered in the current attachment. `None` if the session is not
    /// attached.
    pub(super) fn delivered_event(&self) -> Option<u64> {
        let attached = self.attached.borrow().clone()?;
        Some(self.start(&attached).after)
    }

    pub(super) fn is_attached(&self) -> bool {
        self.attached.borrow().is_some()
    }

    /// The session, and a notification when a request attaches it again.
    pub(super) fn attachments(&self) -> watch::Receiver<Option<Arc<Attached>>> {
        self.attached.subscribe()
    }

    pub(super) fn session(&self) -> Option<SessionHandle> {
        let attached = self.attached.borrow();
        attached.as_ref().map(|attached| attached.session.clone())
    }

    pub(super) fn has_stream(&self) -> bool {
        self.is_on_socket || self.streams.load(Ordering::Acquire) > 0
    }

    /// The start of a stream without a position: after the last delivered message of this attachment. If no message was
    /// delivered, the start of the attachment.
    pub(super) fn start(&self, attached: &Arc<Attached>) -> Start {
        let delivered = lock_or_abort(self.delivered.lock());
        match &*delivered {
            Some((of, start)) if Arc::ptr_eq(of, attached) => *start,
            _ => attached.start,
        }
    }

    pub(super) fn set_delivered(&self, attached: &Arc<Attached>, start: Start) {
        let mut delivered = lock_or_abort(self.delivered.lock());
        let is_newer = match &*delivered {
            Some((of, known)) if Arc::ptr_eq(of, attached) => start > *known,
            _ => true,
        };
        if is_newer {
            *delivered = Some((Arc::clone(attached), start));
        }
    }

    pub(super) fn set_answered(&self, request: RequestId) {
        let mut answered = lock_or_abort(self.answered.lock());
        if answered.len() >= MAX_ANSWERED {
            answered.pop_front();
        }
        answered.push_back(request);
    }

    pub(super) fn was_answered(&self, request: RequestId) -> bool {
        lock_or_abort(self.answered.lock()).contains(&request)
    }
}

/// The maximum number of messages, delivered ones included.
const MAX_MESSAGES: usize = 1024;
/// The maximum number of bytes of all messages, delivered ones included.
const MAX_BYTES: usize = 8 << 20;

/// Messages in their order. Delivered messages stay for readers that reconnect, while there is room.
#[derive(Debug)]
pub(super) struct Outbox {
    state: Mutex<State>,
    last: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct State {
    messages: VecDeque<Entry>,
    bytes: usize,
    /// The number of the last message that a stream has delivered.
    delivered: u64,
}

#[derive(Debug)]
struct Entry {
    number: u64,
    follows: Place,
    message: Bytes,
}

/// A place in the messages of a session: an attachment of the session, and an event of the log.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Place {
    /// The number of the attachment, from 1. 0 if the session is not attached.
    pub(super) attachment: u64,
    pub(super) event: u64,
}

impl Place {
    fn has_reached(self, other: Self) -> bool {
        self.attachment >= other.attachment && self.event >= other.event
    }
}

/// An outbox is full, because the client does not read its responses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("too many unread responses")]
pub(super) struct OutboxFull;

impl Default for Outbox {
    fn default() -> Self {
        Self {
            state: Mutex::default(),
            last: watch::Sender::new(0),
        }
    }
}

impl Outbox {
    fn state(&self) -> MutexGuard<'_, State> {
        lock_or_abort(self.state.lock())
    }

    /// Adds a message that is delivered after the place `follows`. Fails if undelivered messages fill the outbox.
    pub(super) fn push(&self, follows: Place, message: Bytes) -> Result<(), OutboxFull> {
        let mut state = self.state();
        let number = *self.last.borrow() + 1;
        state.bytes += message.len();
        state.messages.push_back(Entry {
            number,
            follows,
            message,
        });
        let delivered = state.delivered;
        while state.messages.len() > MAX_MESSAGES || state.bytes > MAX_BYTES {
            // A single message can be larger than the limit.
            match state
                .messages
                .pop_front_if(|entry| entry.number <= delivered)
            {
                Some(entry) => state.bytes -= entry.message.len(),
                None if state.messages.len() == 1 => break,
                None => {
                    let rejected = state.messages.pop_back();
                    state.bytes -= rejected.map_or(0, |entry| entry.message.len());
                    return Err(OutboxFull);
                }
            }
        }
        drop(state);
        self.last.send_replace(number);
        Ok(())
    }

    /// The first message after `number`, if a reader at this place may deliver it.
    pub(super) fn next(&self, number: u64, reader: Place) -> Option<(u64, Bytes)> {
        let state = self.state();
        let entry = state.messages.iter().find(|entry| entry.number > number)?;
        reader
            .has_reached(entry.follows)
            .then(|| (entry.number, entry.message.clone()))
    }

    pub(super) fn set_delivered(&self, number: u64) {
        let mut state = self.state();
        state.delivered = state.delivered.max(number);
    }

    /// The number of the last delivered message. A stream without a position continues after it.
    pub(super) fn delivered(&self) -> u64 {
        self.state().delivered
    }

    pub(super) fn subscribe(&self) -> watch::Receiver<u64> {
        self.last.subscribe()
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    fn poll<T>(future: &mut (impl Future<Output = T> + Unpin)) -> Poll<T> {
        std::pin::Pin::new(future).poll(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn events_wait_for_a_change_of_the_role_and_have_the_role_of_their_place() {
        let view = SessionView::new(false);
        let set = |role, controller_after| {
            view.set_participant(Participant {
                role,
                info: None,
                controller_after,
            });
        };
        set(Role::Observer, 0);
        assert_eq!(
            poll(&mut pin!(view.role_at(5))),
            Poll::Ready(Role::Observer)
        );
        let Poll::Ready(stopped) = poll(&mut pin!(view.stop_deliveries())) else {
            panic!("nothing is delivered")
        };
        // The events 6 and 7 are created before and after the snapshot, whose last event is 6.
        let mut before = pin!(view.role_at(6));
        let mut after = pin!(view.role_at(7));
        for _ in 0..2 {
            assert_eq!(
                (poll(&mut before), poll(&mut after)),
                (Poll::Pending, Poll::Pending)
            );
            set(Role::Controller, 6);
        }
        drop(stopped);
        assert_eq!(
            poll(&mut before),
            Poll::Ready(Role::Observer),
            "the snapshot has its request"
        );
        assert_eq!(
            poll(&mut after),
            Poll::Ready(Role::Controller),
            "the snapshot does not have its request"
        );
        assert_eq!(view.role(), Role::Controller);
    }

    fn message(bytes: usize) -> Bytes {
        vec![b'x'; bytes].into()
    }

    fn at(attachment: u64, event: u64) -> Place {
        Place { attachment, event }
    }

    #[test]
    fn messages_wait_for_their_event_and_keep_their_order() {
        let outbox = Outbox::default();
        outbox.push(at(1, 5), Bytes::from_static(b"a")).unwrap();
        outbox
            .push(Place::default(), Bytes::from_static(b"b"))
            .unwrap();
        assert_eq!(outbox.next(0, at(1, 4)), None);
        assert_eq!(
            outbox.next(0, at(0, 9)),
            None,
            "the session is not attached yet"
        );
        assert_eq!(
            outbox.next(0, at(1, 5)),
            Some((1, Bytes::from_static(b"a")))
        );
        assert_eq!(
            outbox.next(1, at(1, 5)),
            Some((2, Bytes::from_static(b"b")))
        );
        assert_eq!(outbox.next(2, at(1, 5)), None);
        outbox.set_delivered(2);
        outbox.set_delivered(1);
        assert_eq!(outbox.delivered(), 2);
        assert_eq!(
            outbox.next(0, at(1, 5)).map(|(number, _)| number),
            Some(1),
            "a reader that reconnects gets it again"
        );
    }

    #[test]
    fn unread_messages_are_bounded_and_delivered_ones_make_room() {
        let outbox = Outbox::default();
        for _ in 0..MAX_MESSAGES {
            outbox.push(Place::default(), message(1)).unwrap();
        }
        assert_eq!(outbox.push(Place::default(), message(1)), Err(OutboxFull));
        outbox.set_delivered(2);
        outbox.push(Place::default(), message(1)).unwrap();
        assert_eq!(
            outbox.next(0, Place::default()).map(|(number, _)| number),
            Some(2)
        );

        let outbox = Outbox::default();
        outbox
            .push(Place::default(), message(MAX_BYTES + 1))
            .unwrap();
        assert_eq!(outbox.push(Place::default(), message(1)), Err(OutboxFull));
        outbox.set_delivered(1);
        outbox.push(Place::default(), message(1)).unwrap();
        assert_eq!(
            outbox.next(0, Place::default()).map(|(number, _)| number),
            Some(2)
        );
    }
}
