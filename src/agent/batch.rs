//! The messages of an agent, in batches.

use std::ops::Range;

use bytes::Bytes;
use serde_json::value::RawValue;

use crate::acp::UpdateLine;
use crate::jsonrpc::{CallId, IncomingId, RpcError};

/// A message from the agent, in its order.
#[derive(Debug)]
pub enum Inbound {
    /// A common `session/update`. Its parts are ranges of the batch's block.
    Update(UpdateLine),
    Notification {
        method: Box<str>,
        params: Box<RawValue>,
    },
    Request {
        id: IncomingId,
        method: Box<str>,
        params: Box<RawValue>,
    },
    Response {
        call: CallId,
        outcome: Result<Box<RawValue>, RpcError>,
    },
    /// A line that is not a JSON-RPC message, or a response to an unknown request.
    InvalidLine {
        bytes: usize,
        /// Its start, without secrets and control characters.
        excerpt: Box<str>,
    },
}

/// The messages of one read, or a part of them: `max_batch_bytes` splits a large read.
#[derive(Debug, Default)]
pub struct Batch {
    /// The bytes of the read, as whole lines.
    pub block: Bytes,
    pub messages: Vec<Inbound>,
    /// The offset in the output up to which the batch and all earlier ones contain it. `None`: it is not numbered.
    pub offset: Option<u64>,
    /// The size of the lines.
    pub(super) bytes: usize,
}

impl Batch {
    /// A part of the block, as one of its messages refers to it. Such a part is JSON.
    pub fn raw(&self, part: &Range<usize>) -> Option<&RawValue> {
        serde_json::from_slice(self.block.get(part.clone())?).ok()
    }
}
