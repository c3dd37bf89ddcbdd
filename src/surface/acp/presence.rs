//! Whether a client can be reached, over all its connections.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use crate::session::Presence;
use crate::shutdown::lock_or_abort;

/// How long a client without a stream counts as connected.
const RECONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// The presence of one client.
#[derive(Debug)]
pub(super) struct ClientPresence {
    counts: Mutex<Counts>,
    state: watch::Sender<Presence>,
}

#[derive(Debug, Default)]
struct Counts {
    connections: usize,
    streams: usize,
    has_left: bool,
}

/// Counts one connection of a client.
#[derive(Debug)]
pub(super) struct PresentConnection {
    client: Arc<ClientPresence>,
    has_left: AtomicBool,
}

impl ClientPresence {
    pub(super) fn new() -> Arc<Self> {
        let state = watch::Sender::new(Presence::Until(Instant::now() + RECONNECT_TIMEOUT));
        Arc::new(Self {
            counts: Mutex::default(),
            state,
        })
    }

    /// Whether the client no longer counts as connected. It does not return: its next connection has another presence.
    pub(super) fn has_ended(&self) -> bool {
        self.state.borrow().has_ended(Instant::now())
    }
}

impl PresentConnection {
    pub(super) fn new(client: Arc<ClientPresence>) -> Self {
        lock_or_abort(client.counts.lock()).connections += 1;
        Self {
            client,
            has_left: AtomicBool::new(false),
        }
    }

    pub(super) fn state(&self) -> watch::Receiver<Presence> {
        self.client.state.subscribe()
    }

    pub(super) fn stream_opened(&self) {
        let mut counts = lock_or_abort(self.client.counts.lock());
        counts.streams += 1;
        if !counts.has_left {
            self.client.state.send_replace(Presence::Connected);
        }
    }

    pub(super) fn stream_closed(&self) {
        let mut counts = lock_or_abort(self.client.counts.lock());
        counts.streams -= 1;
        if counts.streams == 0 && !counts.has_left {
            self.client
                .state
                .send_replace(Presence::Until(Instant::now() + RECONNECT_TIMEOUT));
        }
    }

    /// The connection has ended. `may_return`: the client can open another connection with the same name.
    pub(super) fn leave(&self, may_return: bool) {
        if self.has_left.swap(true, Ordering::AcqRel) {
            return;
        }
        let mut counts = lock_or_abort(self.client.counts.lock());
        counts.connections -= 1;
        if counts.connections == 0 && !may_return {
            counts.has_left = true;
            self.client
                .state
                .send_replace(Presence::Until(Instant::now()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn connection(client: &Arc<ClientPresence>) -> PresentConnection {
        PresentConnection::new(Arc::clone(client))
    }

    #[tokio::test(start_paused = true)]
    async fn client_counts_as_connected_for_a_while_after_its_last_stream() {
        let client = ClientPresence::new();
        let only = connection(&client);
        let ended_after = async |seconds: u64| {
            tokio::time::advance(Duration::from_secs(seconds)).await;
            client.has_ended()
        };
        assert!(
            !ended_after(9).await,
            "the client may still open its stream"
        );
        only.stream_opened();
        only.stream_opened();
        assert!(!ended_after(99).await);
        only.stream_closed();
        assert!(!ended_after(99).await, "the other stream is open");
        only.stream_closed();
        assert!(!ended_after(9).await);
        only.stream_opened();
        only.stream_closed();
        assert!(!ended_after(9).await);
        assert!(ended_after(1).await);
    }

    #[tokio::test(start_paused = true)]
    async fn client_leaves_with_its_last_connection() {
        let client = ClientPresence::new();
        let (first, second) = (connection(&client), connection(&client));
        for connection in [&first, &second] {
            connection.stream_opened();
        }
        first.leave(false);
        first.leave(false);
        first.stream_closed();
        assert!(!client.has_ended());
        second.leave(false);
        assert!(client.has_ended());
        second.stream_closed();
        assert!(client.has_ended(), "the end of the stream changes nothing");
    }

    #[tokio::test(start_paused = true)]
    async fn client_with_a_name_may_return() {
        let client = ClientPresence::new();
        let first = connection(&client);
        first.stream_opened();
        first.leave(true);
        first.stream_closed();
        tokio::time::advance(Duration::from_secs(9)).await;
        assert!(!client.has_ended());
        connection(&client).stream_opened();
        tokio::time::advance(Duration::from_secs(9)).await;
        assert!(!client.has_ended());
    }
}
