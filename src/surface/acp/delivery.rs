//! The loops that deliver messages to a stream or a WebSocket, and the position of a client in them. The SSE id of each
//! message is such a position.

use std::convert::Infallible;
use std::pin::pin;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde_json::value::RawValue;
use tokio::sync::watch;
use tokio::time::{Interval, MissedTickBehavior, interval_at};

use super::connection::Connection;
use super::projector::Projector;
use super::session_view::{Attached, Place, SessionView, Start};
use base::telemetry::ErrorChain;
use base::types::{Epoch, EventId};
use events::event::EventRef;
use log::eventlog::{Item, Reader, Start as ReaderStart};
use sessions::session::SessionHandle;

pub(super) trait MessageSink: Send {
    fn push(&mut self, id: &str, message: Bytes);

    /// Waits until the connection has accepted all added messages.
    fn flush(&mut self) -> impl Future<Output = ()> + Send;

    /// Sends a keep-alive, which is no message.
    fn keep_alive(&mut self) -> impl Future<Output = ()> + Send;
}

fn keep_alive_timer(interval: Duration) -> Interval {
    let mut timer = interval_at(tokio::time::Instant::now() + interval, interval);
    timer.set_missed_tick_behavior(MissedTickBehavior::Delay);
    timer
}

/// Delivers the responses that belong to no session, after the message `last`. Drop the future to stop it.
pub(super) async fn deliver_responses(
    connection: &Connection,
    last: Option<u64>,
    keep_alive: Duration,
    sink: &mut impl MessageSink,
) -> Infallible {
    let responses = &connection.responses;
    let mut changes = responses.subscribe();
    let mut timer = keep_alive_timer(keep_alive);
    let mut number = last.unwrap_or_else(|| responses.delivered());
    loop {
        while let Some((next, message)) = responses.next(number, Place::default()) {
            sink.push(&format!("{}.{next}", connection.id), message);
            number = next;
        }
        sink.flush().await;
        responses.set_delivered(number);
        tokio::select! {
            _ = changes.changed() => {}
            _ = timer.tick() => sink.keep_alive().await,
        }
    }
}

#[derive(Debug)]
pub(super) struct SessionDelivery {
    pub(super) connection: Arc<Connection>,
    pub(super) view: Arc<SessionView>,
    /// The epoch of the session's events. `None` until the session is attached.
    pub(super) epoch: Option<Epoch>,
    pub(super) store_epoch: Epoch,
    /// The position that the client has sent with its reconnect, if any.
    pub(super) from: Option<Position>,
    pub(super) keep_alive: Duration,
}

impl SessionDelivery {
    /// Delivers messages. Drop the future to stop it.
    pub(super) async fn run(mut self, sink: &mut impl MessageSink) -> Infallible {
        let mut attachments = self.view.attachments();
        let responses = &self.view.responses;
        let mut from = self.from.take();
        let mut cursor = Cursor {
            at: Start::default(),
            attachment: 0,
            response: match &from {
                Some(from) if *from.connection == *self.connection.id => from.response,
                _ => responses.delivered(),
            },
            responses: responses.subscribe(),
            timer: keep_alive_timer(self.keep_alive),
        };
        loop {
            let attached = attachments.borrow_and_update().clone();
            if let Some(attached) = attached {
                let epoch = attached.session.log().id(0).epoch;
                let resumed = from.take().and_then(|from| from.resume(&epoch));
                self.epoch = Some(epoch);
                cursor.at = match resumed {
                    Some((after, skip)) => Start { after, skip },
                    None => self.view.start(&attached),
                };
                self.deliver_attached(&attached, &mut cursor, &mut attachments, sink)
                    .await;
            } else {
                self.deliver_unattached(&mut cursor, &mut attachments, sink)
                    .await;
            }
        }
    }

    async fn deliver_unattached(
        &self,
        cursor: &mut Cursor,
        attachments: &mut Attachments,
        sink: &mut impl MessageSink,
    ) {
        loop {
            self.push_responses(cursor, sink);
            sink.flush().await;
            self.view.responses.set_delivered(cursor.response);
            tokio::select! {
                _ = attachments.changed() => return,
                _ = cursor.responses.changed() => {}
                _ = cursor.timer.tick() => sink.keep_alive().await,
            }
        }
    }

    async fn deliver_attached(
        &self,
        attached: &Arc<Attached>,
        cursor: &mut Cursor,
        attachments: &mut Attachments,
        sink: &mut impl MessageSink,
    ) {
        let session = &attached.session;
        let start = cursor.at;
        let projector = Projector::new(
            session.id(),
            &self.connection.client,
            attached.history,
            attached.responses_after,
        );
        cursor.attachment = attached.number;
        let mut reader = Some(session.log().reader(ReaderStart::After(start.after)));
        let mut access_ended = pin!(session.wait_access_ended());
        loop {
            self.push_responses(cursor, sink);
            sink.flush().await;
            self.view.responses.set_delivered(cursor.response);
            self.view.set_delivered(attached, cursor.at);
            tokio::select! {
                biased;
                _ = attachments.changed() => return,
                () = access_ended.as_mut(), if reader.is_some() => {
                    reader = None;
                    self.connection.close();
                }
                item = next_item(&mut reader, session) => match item {
                    Some(Item::Run(run)) => {
                        for event in run.events() {
                            // A client that reconnects can have some of the messages of the first event.
                            let skip = if event.seq() == start.after + 1 { start.skip } else { 0 };
                            let role = self.view.role_at(event.seq()).await;
                            // The role can have changed meanwhile, with another attachment or the open requests.
                            if attachments.has_changed().unwrap_or(false) {
                                return;
                            }
                            self.push_responses(cursor, sink);
                            let messages = self.project(&projector.with_role(role), session, &event).await;
                            for (index, message) in messages.into_iter().enumerate().skip(skip) {
                                cursor.at = Start { after: event.seq() - 1, skip: index + 1 };
                                sink.push(&self.id(cursor), message);
                            }
                            cursor.at = Start { after: event.seq(), skip: 0 };
                            self.push_responses(cursor, sink);
                        }
                    }
                    Some(Item::Reset { before, .. }) => cursor.at = Start { after: before, skip: 0 },
                    Some(Item::Ready { .. }) => {}
                    // The stream stays open, because the official clients fail at the end of a stream.
                    Some(Item::End) => reader = None,
                    // The client must not wait for messages that cannot be read.
                    None => {
                        reader = None;
                        self.connection.close();
                    }
                },
                _ = cursor.responses.changed() => {}
                _ = cursor.timer.tick() => sink.keep_alive().await,
            }
        }
    }

    async fn project(
        &self,
        projector: &Projector<'_>,
        session: &SessionHandle,
        event: &EventRef<'_>,
    ) -> Vec<Bytes> {
        let mut queued: Option<Box<RawValue>> = None;
        if let Some(turn) = Projector::queued_turn(event) {
            let blocks = session.query().prompt_blocks(turn).await;
            queued = blocks.unwrap_or_default();
        }
        let was_answered = |request| self.view.was_answered(request);
        projector.messages(event, queued.as_deref(), was_answered)
    }

    /// Adds the responses whose place the delivery has reached.
    fn push_responses(&self, cursor: &mut Cursor, sink: &mut impl MessageSink) {
        if *cursor.responses.borrow() <= cursor.response {
            return;
        }
        let responses = &self.view.responses;
        while let Some((number, message)) = responses.next(cursor.response, cursor.place()) {
            cursor.response = number;
            sink.push(&self.id(cursor), message);
        }
    }

    fn id(&self, cursor: &Cursor) -> String {
        let (epoch, seq) = match &self.epoch {
            Some(epoch) => (epoch, cursor.at.after + 1),
            // The position before the first event.
            None => (&self.store_epoch, 0),
        };
        let epoch = epoch.clone();
        let position = Position {
            event: EventId { epoch, seq },
            part: cursor.at.skip,
            connection: self.connection.id.clone(),
            response: cursor.response,
        };
        position.to_string()
    }
}

type Attachments = watch::Receiver<Option<Arc<Attached>>>;

struct Cursor {
    at: Start,
    attachment: u64,
    response: u64,
    responses: watch::Receiver<u64>,
    timer: Interval,
}

impl Cursor {
    fn place(&self) -> Place {
        Place {
            attachment: self.attachment,
            event: self.at.after,
        }
    }
}

/// The next item of the log. `None` after an error, which is logged. Waits for ever without a reader.
async fn next_item(reader: &mut Option<Reader>, session: &SessionHandle) -> Option<Item> {
    let Some(reader) = reader else {
        return std::future::pending().await;
    };
    let next = reader.next().await;
    next.inspect_err(|error| {
        let session = session.id();
        tracing::error!(%session, error = %ErrorChain(error), "could not read the log of a session for an ACP client");
    })
    .ok()
}

/// A position in the messages of a session: a place in the log, and a place among the responses that are not in
/// the log. Text form: `<event id>.<part>/<connection>.<number>`.
#[derive(Debug, Clone, PartialEq, Eq, derive_more::Display)]
#[display("{event}.{part}/{connection}.{response}")]
pub(super) struct Position {
    /// The event of the last message. All messages of earlier events were delivered.
    pub(super) event: EventId,
    /// The number of messages of the event that were delivered. One event can become several messages.
    pub(super) part: usize,
    /// The id of the connection whose responses `response` counts. The log is the same for all connections.
    pub(super) connection: Box<str>,
    /// The number of the last delivered response.
    pub(super) response: u64,
}

/// The text is no position of this surface.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not an id of this stream")]
pub(super) struct PositionError;

impl FromStr for Position {
    type Err = PositionError;

    fn from_str(text: &str) -> Result<Self, PositionError> {
        let (log, own) = text.split_once('/').ok_or(PositionError)?;
        let (event, part) = log.split_once('.').ok_or(PositionError)?;
        let (connection, response) = own.split_once('.').ok_or(PositionError)?;
        Ok(Self {
            event: event.parse().map_err(|_| PositionError)?,
            part: part.parse().map_err(|_| PositionError)?,
            connection: connection.into(),
            response: response.parse().map_err(|_| PositionError)?,
        })
    }
}

impl Position {
    /// The seq after which a reader of a session with this epoch continues, and the number of messages of the next event that
    /// it skips. `None` for a position of another epoch. The position before the first event is accepted for every
    /// epoch, because it contains the store's epoch instead of a session's.
    pub(super) fn resume(&self, epoch: &Epoch) -> Option<(u64, usize)> {
        match self.event.seq.checked_sub(1) {
            Some(before) => (self.event.epoch == *epoch).then_some((before, self.part)),
            None => Some((0, 0)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_round_trip_and_resume_in_the_middle_of_an_event() {
        let position: Position = "k3-42.2/0193.7".parse().unwrap();
        assert_eq!(position.to_string(), "k3-42.2/0193.7");
        assert_eq!(
            (position.part, position.response, &*position.connection),
            (2, 7, "0193")
        );
        assert_eq!(position.resume(&"k3".parse().unwrap()), Some((41, 2)));
        assert_eq!(position.resume(&"k4".parse().unwrap()), None);
        let begin: Position = "k3-0.0/0193.0".parse().unwrap();
        assert_eq!(begin.resume(&"k3".parse().unwrap()), Some((0, 0)));
        for wrong in [
            "",
            "k3-42",
            "k3-42/1.2",
            "k3-42.x/1.2",
            "k3-42.1/1",
            "k3-42.1/1.x",
        ] {
            assert_eq!(wrong.parse::<Position>(), Err(PositionError), "{wrong}");
        }
    }
}
