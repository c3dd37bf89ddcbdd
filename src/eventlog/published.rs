//! Committed events in memory, of all sessions.

use std::sync::{Mutex, MutexGuard};

use crate::shutdown::lock_or_abort;

use super::notify::Watermark;
use super::read_cache::ReadCache;
use super::tails::Tails;

#[derive(Debug)]
pub(super) struct Published {
    /// The position of the last event that is durable and published to readers.
    pub(super) last_pos: Watermark,
    tails: Mutex<Tails>,
    read_cache: Mutex<ReadCache>,
}

impl Published {
    pub(super) fn new(last_pos: u64) -> Self {
        Self { last_pos: Watermark::new(last_pos), tails: Mutex::default(), read_cache: Mutex::default() }
    }

    pub(super) fn tails(&self) -> MutexGuard<'_, Tails> {
        lock_or_abort(self.tails.lock())
    }

    pub(super) fn read_cache(&self) -> MutexGuard<'_, ReadCache> {
        lock_or_abort(self.read_cache.lock())
    }
}
