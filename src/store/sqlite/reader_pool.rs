//! The connections that read.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use rusqlite::Connection;

use super::super::error::ReadError;
use super::connection;

/// A pool of connections. If none is free, callers wait for the connections in turn.
#[derive(Debug)]
pub(super) struct ReaderPool {
    connections: Vec<Mutex<Connection>>,
    next: AtomicUsize,
}

impl ReaderPool {
    pub(super) fn open(path: &Path, count: usize) -> Result<Self, rusqlite::Error> {
        let connections = (0..count.max(1)).map(|_| connection::open_reader(path).map(Mutex::new));
        Ok(Self {
            connections: connections.collect::<Result<_, _>>()?,
            next: AtomicUsize::new(0),
        })
    }

    pub(super) fn with<T>(
        &self,
        read: impl FnOnce(&Connection) -> Result<T, ReadError>,
    ) -> Result<T, ReadError> {
        let free = self
            .connections
            .iter()
            .find_map(|connection| connection.try_lock().ok());
        let connection = free.unwrap_or_else(|| {
            let next = self.next.fetch_add(1, Ordering::Relaxed) % self.connections.len();
            // A panic of a reader does not affect its connection.
            self.connections[next]
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
        });
        read(&connection)
    }
}
