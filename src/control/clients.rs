//! The connections of the control socket, with and without a checked token.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use tokio_util::sync::CancellationToken;

use crate::shutdown::lock_or_abort;

/// The maximum number of connections with a checked token. Each editor has one.
pub(super) const MAX_CONNECTIONS: usize = 256;
/// The maximum number of connections whose token is not checked yet. A new one evicts the oldest.
const MAX_UNCHECKED: usize = 64;

/// The number of commands with a checked token. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct ControlClients(Arc<AtomicUsize>);

impl ControlClients {
    pub fn count(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    pub(super) fn enter(&self) -> Option<ClientGuard> {
        let entered = self
            .0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |count| {
                (count < MAX_CONNECTIONS).then_some(count + 1)
            });
        entered.ok().map(|_| ClientGuard(self.clone()))
    }
}

#[derive(Debug)]
pub(super) struct ClientGuard(ControlClients);

impl Drop for ClientGuard {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The connections whose token is not checked yet, the oldest first.
#[derive(Debug, Default)]
pub(super) struct Unchecked(Mutex<VecDeque<CancellationToken>>);

impl Unchecked {
    /// Counts a connection. The token is cancelled when the connection must end.
    pub(super) fn enter(&self) -> CancellationToken {
        let evicted = CancellationToken::new();
        let mut open = lock_or_abort(self.0.lock());
        // The token of a connection that has left is cancelled too.
        open.retain(|one| !one.is_cancelled());
        if open.len() >= MAX_UNCHECKED
            && let Some(oldest) = open.pop_front()
        {
            oldest.cancel();
        }
        open.push_back(evicted.clone());
        evicted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn oldest_unchecked_connection_is_evicted() {
        let unchecked = Unchecked::default();
        let tokens: Vec<_> = (0..=MAX_UNCHECKED).map(|_| unchecked.enter()).collect();
        let evicted: Vec<_> = tokens.iter().map(CancellationToken::is_cancelled).collect();
        assert!(evicted[0] && evicted[1..].iter().all(|evicted| !evicted));
        // A connection that has left needs no place.
        tokens[5].cancel();
        unchecked.enter();
        assert!(!tokens[1].is_cancelled());
        unchecked.enter();
        assert!(tokens[1].is_cancelled());
    }

    #[test]
    fn connections_with_a_checked_token_are_bounded() {
        let clients = ControlClients::default();
        let mut guards: Vec<_> = std::iter::from_fn(|| clients.enter())
            .take(MAX_CONNECTIONS + 1)
            .collect();
        assert_eq!(
            (guards.len(), clients.count()),
            (MAX_CONNECTIONS, MAX_CONNECTIONS)
        );
        guards.pop();
        assert!(clients.enter().is_some());
    }
}
