//! The position of a session in the output of a process that outlives the gateway.

use serde::{Deserialize, Serialize};

use super::codec::encode;
use super::keys::session_key;
use crate::eventlog::Records;
use crate::fleet::ChannelId;
use crate::store::Table;
use crate::types::SessionId;

/// The output of the channel before `offset` is in the log. The record is written in the commit of its events.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(in crate::session) struct OutputPosition {
    pub(in crate::session) channel: ChannelId,
    pub(in crate::session) offset: u64,
}

impl OutputPosition {
    pub(in crate::session) fn records(self, id: SessionId) -> Records {
        Records::default().put(Table::OutputPosition, session_key(id), encode(&self))
    }
}
