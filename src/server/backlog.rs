//! Limits the memory that a client occupies by not reading: unsent response bytes, and requests on
//! unauthenticated connections.
//!
//! Only HTTP/2 needs this. An HTTP/1.1 connection has one request at a time.
//!
//! A request over the limit waits. A 503 would discard finished work. The gateway does not announce fewer streams to
//! clients without a key, because hyper cannot raise this limit on an open connection.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

use crate::types::Limits;

/// Marks a response whose body is shared by all clients. An unsent copy of it needs no memory.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SharedBody;

/// The unsent response bytes of all connections.
#[derive(Debug, Clone)]
pub(super) struct GlobalBacklog(Arc<GlobalState>);

#[derive(Debug)]
struct GlobalState {
    bytes: AtomicUsize,
    /// Notifies waiting connections that response bytes were sent or dropped.
    released: Notify,
    limits: Arc<Limits>,
}

/// The unsent response bytes and the requests of one connection.
#[derive(Debug, Clone)]
pub(super) struct ConnectionBacklog(Arc<ConnectionState>);

#[derive(Debug)]
struct ConnectionState {
    total: Arc<GlobalState>,
    bytes: AtomicUsize,
    authenticated: AtomicBool,
    /// Permits for requests that run before the connection is authenticated.
    unauthenticated: Arc<Semaphore>,
}

impl GlobalBacklog {
    pub(super) fn new(limits: &Arc<Limits>) -> Self {
        let limits = Arc::clone(limits);
        Self(Arc::new(GlobalState {
            bytes: AtomicUsize::new(0),
            released: Notify::new(),
            limits,
        }))
    }

    pub(super) fn connection(&self) -> ConnectionBacklog {
        let streams = self.0.limits.max_h2_unauthenticated_streams as usize;
        ConnectionBacklog(Arc::new(ConnectionState {
            total: Arc::clone(&self.0),
            bytes: AtomicUsize::new(0),
            authenticated: AtomicBool::new(false),
            unauthenticated: Arc::new(Semaphore::new(streams)),
        }))
    }
}

impl ConnectionBacklog {
    /// Records that a request of this connection had a valid key.
    pub(super) fn authenticated(&self) {
        if !self.0.authenticated.swap(true, Ordering::Relaxed) {
            // Closing the semaphore wakes the waiting requests. They run without a permit.
            self.0.unauthenticated.close();
        }
    }

    /// Waits until the next request may run. An unauthenticated connection runs a limited number of requests
    /// at a time. A request on a connection with unsent bytes waits while the connection or the gateway
    /// exceeds its limit of unsent bytes. A connection without unsent bytes does not wait for other connections.
    pub(super) async fn admit(&self) -> UnsentBytes {
        let ConnectionState {
            total,
            bytes,
            unauthenticated,
            ..
        } = &*self.0;
        let permit = Arc::clone(unauthenticated).acquire_owned().await.ok();
        loop {
            // The future is created before the check. Otherwise a release between the check and the wait
            // would be lost.
            let released = total.released.notified();
            let (own, all) = (
                bytes.load(Ordering::Relaxed),
                total.bytes.load(Ordering::Relaxed),
            );
            let limits = &total.limits;
            if own == 0
                || (own < limits.max_connection_unsent_bytes && all < limits.max_unsent_bytes)
            {
                return UnsentBytes {
                    connection: Some(self.clone()),
                    bytes: 0,
                    _permit: permit,
                };
            }
            released.await;
        }
    }
}

/// The unsent bytes of one response. Dropping it releases them.
#[derive(Debug)]
pub(super) struct UnsentBytes {
    /// `None` if the bytes are not counted.
    connection: Option<ConnectionBacklog>,
    bytes: usize,
    _permit: Option<OwnedSemaphorePermit>,
}

impl UnsentBytes {
    /// For HTTP/1.1 connections, which have one request at a time.
    pub(super) const fn uncounted() -> Self {
        Self {
            connection: None,
            bytes: 0,
            _permit: None,
        }
    }

    /// Sets the number of bytes of the response that are in memory.
    pub(super) fn set(&mut self, bytes: usize) {
        let Some(ConnectionBacklog(connection)) = &self.connection else {
            return;
        };
        let before = std::mem::replace(&mut self.bytes, bytes);
        for counter in [&connection.bytes, &connection.total.bytes] {
            counter.fetch_add(bytes, Ordering::Relaxed);
            counter.fetch_sub(before, Ordering::Relaxed);
        }
        if bytes < before {
            connection.total.released.notify_waiters();
        }
    }
}

impl Drop for UnsentBytes {
    fn drop(&mut self) {
        self.set(0);
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    fn backlog(limits: Limits) -> GlobalBacklog {
        GlobalBacklog::new(&Arc::new(limits))
    }

    #[tokio::test]
    async fn connection_over_its_unsent_limit_waits_for_its_responses() {
        let backlog = backlog(Limits {
            max_connection_unsent_bytes: 100,
            ..Limits::default()
        });
        let (one, other) = (backlog.connection(), backlog.connection());
        let mut first = one.admit().await;
        first.set(100);
        assert!(one.admit().now_or_never().is_none());
        assert!(other.admit().now_or_never().is_some(), "another connection");
        first.set(99);
        assert!(one.admit().now_or_never().is_some());
        first.set(200);
        let (waits, ()) = tokio::join!(biased; one.admit(), async { drop(first) });
        drop(waits);
    }

    #[tokio::test]
    async fn global_unsent_limit_blocks_only_connections_with_unsent_bytes() {
        let backlog = backlog(Limits {
            max_unsent_bytes: 100,
            ..Limits::default()
        });
        let (one, other) = (backlog.connection(), backlog.connection());
        let (mut first, mut second) = (one.admit().await, other.admit().await);
        first.set(60);
        second.set(60);
        assert!(one.admit().now_or_never().is_none() && other.admit().now_or_never().is_none());
        assert!(
            backlog.connection().admit().now_or_never().is_some(),
            "the connection has no unsent bytes"
        );
        drop(first);
        assert!(other.admit().now_or_never().is_some());
    }

    #[tokio::test]
    async fn unauthenticated_connection_runs_few_concurrent_requests() {
        let backlog = backlog(Limits {
            max_h2_unauthenticated_streams: 2,
            ..Limits::default()
        });
        let connection = backlog.connection();
        let open = (connection.admit().await, connection.admit().await);
        assert!(connection.admit().now_or_never().is_none());
        drop(open.0);
        let third = connection
            .admit()
            .now_or_never()
            .expect("one request has ended");
        let (fourth, ()) =
            tokio::join!(biased; connection.admit(), async { connection.authenticated() });
        assert!(
            connection.admit().now_or_never().is_some(),
            "the connection is authenticated"
        );
        drop((third, fourth, open.1));
    }
}
