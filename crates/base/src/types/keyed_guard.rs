//! Counts by key that release themselves.

use std::collections::HashMap;
use std::hash::Hash;
use std::process::abort;
use std::sync::{Arc, Mutex, MutexGuard};

use bytes::Bytes;
use tokio::sync::oneshot;

/// The number of live guards of each key. All clones share the counts.
#[derive(Debug, Clone)]
pub struct KeyedCounts<K>(Arc<Mutex<HashMap<K, usize>>>);

/// One use of a key. Dropping it releases the count.
#[derive(Debug)]
pub struct KeyedGuard<K: Eq + Hash> {
    counts: KeyedCounts<K>,
    key: K,
}

impl<K> Default for KeyedCounts<K> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<K: Eq + Hash> KeyedCounts<K> {
    /// Counts one more use of the key. Returns `None` if `max` guards of the key exist.
    pub fn acquire(&self, key: K, max: usize) -> Option<KeyedGuard<K>>
    where
        K: Clone,
    {
        let mut counts = self.lock();
        match counts.get_mut(&key) {
            Some(count) if *count >= max => return None,
            Some(count) => *count += 1,
            None if max == 0 => return None,
            None => drop(counts.insert(key.clone(), 1)),
        }
        drop(counts);
        Some(KeyedGuard {
            counts: self.clone(),
            key,
        })
    }

    pub fn count(&self, key: &K) -> usize {
        self.lock().get(key).copied().unwrap_or_default()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<K, usize>> {
        self.0.lock().unwrap_or_else(|_| abort())
    }
}

impl<K: Eq + Hash> Drop for KeyedGuard<K> {
    fn drop(&mut self) {
        let mut counts = self.counts.lock();
        if let Some(count) = counts.get_mut(&self.key) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.key);
            }
        }
    }
}

/// A line with its newline, in the queue of a writer. Its sender can wait for its delivery.
#[derive(Debug)]
pub struct QueuedLine {
    bytes: Bytes,
    delivered: Option<oneshot::Sender<()>>,
}

impl From<Bytes> for QueuedLine {
    fn from(bytes: Bytes) -> Self {
        Self {
            bytes,
            delivered: None,
        }
    }
}

impl QueuedLine {
    /// A line whose delivery is reported. The receiver fails if the writer ends before the delivery.
    pub fn reported(bytes: Bytes) -> (Self, oneshot::Receiver<()>) {
        let (delivered, receiver) = oneshot::channel();
        (
            Self {
                bytes,
                delivered: Some(delivered),
            },
            receiver,
        )
    }

    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// Reports the delivery to the sender.
    pub fn delivered(self) {
        if let Some(delivered) = self.delivered {
            // The sender may have stopped waiting.
            delivered.send(()).ok();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guards_are_limited_per_key_until_they_drop() {
        let counts = KeyedCounts::default();
        let first = counts.acquire("a", 2).unwrap();
        let second = counts.acquire("a", 2).unwrap();
        assert!(counts.acquire("a", 2).is_none() && counts.acquire("b", 0).is_none());
        assert!(counts.acquire("b", 1).is_some());
        assert_eq!((counts.count(&"a"), counts.count(&"b")), (2, 0));
        drop(first);
        assert_eq!(counts.count(&"a"), 1);
        drop(second);
        assert!(
            counts.lock().is_empty(),
            "a key without guards uses no memory"
        );
    }
}
