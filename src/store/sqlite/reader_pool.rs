//! The connections that read.

use std::path::Path;
use std::sync::{Condvar, Mutex};

use rusqlite::Connection;

use crate::shutdown::lock_or_abort;

use super::super::error::ReadError;
use super::connection;
use super::error::OpenError;

/// A pool of connections. A caller waits until one is free.
#[derive(Debug)]
pub(super) struct ReaderPool {
    free: Mutex<Vec<Connection>>,
    returned: Condvar,
}

impl ReaderPool {
    pub(super) fn open(path: &Path, count: usize) -> Result<Self, OpenError> {
        let free: Result<Vec<_>, _> = (0..count.max(1)).map(|_| connection::open_reader(path)).collect();
        Ok(Self { free: Mutex::new(free?), returned: Condvar::new() })
    }

    pub(super) fn with<T>(
        &self,
        read: impl FnOnce(&Connection) -> Result<T, ReadError>,
    ) -> Result<T, ReadError> {
        let mut taken = PooledConnection { readers: self, connection: Some(self.acquire()) };
        read(taken.connection.as_mut().expect("the connection is returned only on drop"))
    }

    fn acquire(&self) -> Connection {
        let mut free = lock_or_abort(self.free.lock());
        loop {
            match free.pop() {
                Some(connection) => return connection,
                None => free = lock_or_abort(self.returned.wait(free)),
            }
        }
    }
}

/// A connection that returns to the pool on drop.
struct PooledConnection<'a> {
    readers: &'a ReaderPool,
    connection: Option<Connection>,
}

impl Drop for PooledConnection<'_> {
    fn drop(&mut self) {
        let mut free = lock_or_abort(self.readers.free.lock());
        free.extend(self.connection.take());
        drop(free);
        self.readers.returned.notify_one();
    }
}
