//! A process that the pool grants to a waiter.

use std::sync::Arc;

use tokio::sync::Notify;

use super::pool_key::PoolKey;
use crate::agent::Process;

/// The content of a lease.
#[derive(Debug)]
pub(super) struct Grant {
    pub(super) process: Process,
    pub(super) lease: LeaseInfo,
}

/// The properties of a lease.
#[derive(Debug)]
pub(super) struct LeaseInfo {
    pub(super) id: u64,
    pub(super) pool: PoolKey,
    /// The id of the principal.
    pub(super) principal: Arc<str>,
    pub(super) recall: Arc<Notify>,
    /// The principal that used the process before.
    pub(super) used_by: Option<Arc<str>>,
    /// The generation of the sign-in that the process has.
    pub(super) generation: u64,
}
