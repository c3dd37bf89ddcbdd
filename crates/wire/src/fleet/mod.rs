//! The fleet: members that connect to the gateway and offer agents, also from behind NAT.
//!
//! One WebSocket connects a member. It carries channels, one for each process that the member runs. Output and
//! commands are numbered and acknowledged, so that neither a cut of the network nor a killed gateway loses or repeats
//! a line (ADR 39). The gateway acknowledges output only after its events are durable.
//!
//! This module knows neither agents nor sockets. Reading order: `frame` (the messages), `output` (both
//! directions as state machines), `member` (one member at the gateway, and its channels), `members` (all members).
//!
//! A member keeps output until the gateway acknowledges it, and stops reading the process at [`WINDOW`] bytes. The
//! gateway keeps commands until the member acknowledges them. A member remembers the newest keys of lines for each
//! channel, so a repeated prompt or answer reaches the process once. A returning member's channel waits one minute for
//! its session.
//!
//! The member sends a random token. Another token gets the name only after the return timeout.

mod frame;
mod member;
mod member_names;
mod output;
mod members;
#[cfg(test)]
mod tests;

pub use frame::{
    ChannelId, Command, FrameError, GATEWAY_FRAME_BYTES, GatewayFrame, HeldChannel, Hello,
    MEMBER_FRAME_BYTES, MemberFrame, MemberInfo, PROTOCOL, ProcessEnd, decode, encode,
};
pub use member::{
    Channel, ChannelEnd, ChannelOutput, KEY_ENDED_TEXT, Member, MemberChange, MemberState,
    MemberStatus, REMOVED_TEXT,
};
pub use member_names::{MemberNameError, MemberNames};
pub use members::{Fleet, FleetError, JoinError, Joined, MemberKey, StoredMember};
pub use output::{CommandReceiver, OutputBuffer, ProtocolError};

use std::time::Duration;

/// The interval of heartbeats in both directions.
pub const HEARTBEAT: Duration = Duration::from_secs(10);
/// A peer that sends nothing for this time is gone.
pub const SILENCE: Duration = Duration::from_secs(30);
/// The close code of a connection whose member an operator has removed. The member does not connect again.
pub const REMOVED: u16 = 4000;
/// The output in bytes that a member may send for a channel without an acknowledgement. It exceeds the longest line.
pub const WINDOW: u64 = 20 << 20;
