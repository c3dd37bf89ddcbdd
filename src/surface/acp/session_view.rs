//! A session as one connection follows it.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use tokio::sync::{RwLock, RwLockWriteGuard, watch};
use tokio_util::sync::CancellationToken;

use super::outbox::Outbox;
use super::participant::{Participant, Role};
use crate::session::SessionHandle;
use crate::shutdown::lock_or_abort;
use crate::types::RequestId;

/// The maximum number of answered requests that are remembered.
const MAX_ANSWERED: usize = 256;

/// The state of a session on a connection. It exists before the session is attached, because clients open the stream of a
/// session before they load it.
#[derive(Debug)]
pub(super) struct SessionView {
    attached: watch::Sender<Option<Arc<Attached>>>,
    responses: Outbox,
    /// The position after the last delivered message, with the attachment to which it belongs.
    delivered: Mutex<Option<(Arc<Attached>, Start)>>,
    /// The requests of the agent that this connection has answered.
    answered: Mutex<VecDeque<RequestId>>,
    streams: AtomicUsize,
    participant: Mutex<Participant>,
    /// Deliveries take it for reading before each event. A change of the participant takes it for writing.
    gate: RwLock<()>,
    /// The client has detached from the session.
    ended: CancellationToken,
    /// A WebSocket delivers every session of its connection.
    is_on_socket: bool,
}

/// A session that a request of the connection has created, loaded or resumed.
#[derive(Debug)]
pub(super) struct Attached {
    pub(super) session: SessionHandle,
    pub(super) start: Start,
    /// The last event of the history that `session/load` replays, otherwise 0.
    pub(super) history: u64,
    /// Responses to prompts are delivered if their event is after this one, also if the event is in the history.
    pub(super) responses_after: u64,
    /// The number of the attachment.
    pub(super) number: u64,
}

/// The first message that a client gets.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Start {
    /// The messages follow this event of the log.
    pub(super) after: u64,
    /// The number of messages of the next event that the client already has.
    pub(super) skip: usize,
}

/// An open stream of a session.
#[derive(Debug)]
pub(super) struct OpenSessionStream(Arc<SessionView>);

impl OpenSessionStream {
    pub(super) fn new(view: &Arc<SessionView>) -> Self {
        view.streams.fetch_add(1, Ordering::AcqRel);
        Self(Arc::clone(view))
    }
}

impl Drop for OpenSessionStream {
    fn drop(&mut self) {
        self.0.streams.fetch_sub(1, Ordering::AcqRel);
    }
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

    /// Ends the streams of the view.
    pub(super) fn end(&self) {
        self.ended.cancel();
    }

    pub(super) async fn wait_ended(&self) {
        self.ended.cancelled().await;
    }

    /// The number of the next attachment.
    pub(super) fn next_number(&self) -> u64 {
        self.attached
            .borrow()
            .as_ref()
            .map_or(1, |attached| attached.number + 1)
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
        self.attached
            .borrow()
            .as_ref()
            .map(|attached| attached.session.clone())
    }

    pub(super) fn responses(&self) -> &Outbox {
        &self.responses
    }

    /// Whether a stream delivers the session.
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
        let (mut before, mut after) = (pin!(view.role_at(6)), pin!(view.role_at(7)));
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
}
