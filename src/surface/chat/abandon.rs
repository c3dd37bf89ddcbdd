//! Clients that disconnect. In protocols without a route for a stop, a disconnect is the only sign of a stop.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use base::shutdown::Shutdown;
use base::types::{CancelCause, KeyedCounts, KeyedGuard, PromptId, SessionId};
use sessions::session::SessionHandle;

const GRACE: Duration = Duration::from_secs(5);

pub(crate) type Watchers = KeyedCounts<(SessionId, PromptId)>;

/// Cancels a turn some seconds after its last client has disconnected. A turn that waits for an answer goes on.
#[derive(Debug)]
pub(crate) struct CancelOnDisconnect {
    session: SessionHandle,
    prompt: PromptId,
    shutdown: Shutdown,
    watchers: Watchers,
    watched: Option<KeyedGuard<(SessionId, PromptId)>>,
    complete: AtomicBool,
}

impl CancelOnDisconnect {
    /// `is_own`: whether the client began the turn. Otherwise, its disconnect cancels nothing.
    pub(super) fn new(
        shutdown: Shutdown,
        watchers: Watchers,
        session: SessionHandle,
        prompt: PromptId,
        is_own: bool,
    ) -> Self {
        let watched = watchers.acquire((session.id(), prompt), usize::MAX);
        Self {
            session,
            prompt,
            shutdown,
            watchers,
            watched,
            complete: AtomicBool::new(!is_own),
        }
    }

    pub(super) fn completed(&self) {
        self.complete.store(true, Ordering::Relaxed);
    }
}

impl Drop for CancelOnDisconnect {
    fn drop(&mut self) {
        let _ = self.watched.take();
        if self.complete.load(Ordering::Relaxed) || self.shutdown.is_draining() {
            return;
        }
        let session = self.session.clone();
        let prompt = self.prompt;
        let watchers = self.watchers.clone();
        let drained = self.shutdown.clone();
        self.shutdown.spawn(async move {
            tokio::select! {
                () = tokio::time::sleep(GRACE) => {}
                () = drained.drain_started() => return,
            }
            if watchers.count(&(session.id(), prompt)) > 0 {
                return;
            }
            let waits = session
                .snapshot()
                .await
                .is_ok_and(|now| !now.requests.is_empty());
            if !waits
                && let Err(error) = session
                    .cancel(Some(prompt), CancelCause::Disconnect, None)
                    .await
            {
                tracing::debug!(
                    error = &error as &dyn std::error::Error,
                    "could not cancel the turn of a client that left"
                );
            }
        });
    }
}
